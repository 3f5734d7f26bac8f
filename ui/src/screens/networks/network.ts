import type { NetworkAttachmentDefinition } from '@/api/cluster';
import { isRecord } from '@/api/types';

/** A network for machines: what its JSON says, in words of its own. */
export interface NetworkFacts {
  /** Of the plug-in, as `bridge`. */
  plugin: string;
  bridge: string;
  /** The cluster network whose bridge it is; empty for a bridge that the host has anyway. */
  clusterNetwork: string;
  vlan: number;
  trunk: boolean;
  mtu: number | undefined;
  spoofCheck: boolean;
}

const bridgeSuffix = '-br';
export const routeAnnotation = 'network.harvesterhci.io/route';
const descriptionAnnotation = 'field.cattle.io/description';

export function configOf(network: NetworkAttachmentDefinition): Record<string, unknown> {
  try {
    const config: unknown = JSON.parse(network.spec.config);
    return isRecord(config) ? config : {};
  } catch {
    return {};
  }
}

export function factsOf(network: NetworkAttachmentDefinition): NetworkFacts {
  const config = configOf(network);
  const bridge = text(config['bridge']);
  const mtu = config['mtu'];
  return {
    plugin: text(config['type']),
    bridge,
    clusterNetwork: bridge.endsWith(bridgeSuffix) ? bridge.slice(0, -bridgeSuffix.length) : '',
    vlan: typeof config['vlan'] === 'number' ? config['vlan'] : 0,
    trunk: Array.isArray(config['vlanTrunk']),
    mtu: typeof mtu === 'number' && mtu > 0 ? mtu : undefined,
    spoofCheck: config['macspoofchk'] === true,
  };
}

export interface Route {
  mode: 'auto' | 'manual';
  serverIPAddr: string;
  cidr: string;
  gateway: string;
}

export function routeOf(network: NetworkAttachmentDefinition): Route | null {
  try {
    const route: unknown = JSON.parse(network.metadata.annotations?.[routeAnnotation] ?? 'null');
    if (!isRecord(route)) return null;
    return { mode: route['mode'] === 'manual' ? 'manual' : 'auto', serverIPAddr: text(route['serverIPAddr']), cidr: text(route['cidr']), gateway: text(route['gateway']) };
  } catch {
    return null;
  }
}

export function descriptionOf(network: NetworkAttachmentDefinition): string {
  return network.metadata.annotations?.[descriptionAnnotation] ?? '';
}

export interface NetworkForm {
  name: string;
  namespace: string;
  description: string;
  /** Whether it is on a cluster network, or on a bridge that the host has anyway. */
  on: 'cluster' | 'host';
  clusterNetwork: string;
  bridge: string;
  tagged: boolean;
  vlan: number | '';
  mtu: number | '';
  spoofCheck: boolean;
  route: Route;
}

export function emptyForm(namespace: string): NetworkForm {
  return {
    name: '',
    namespace,
    description: '',
    on: 'host',
    clusterNetwork: 'mgmt',
    bridge: 'br0',
    tagged: true,
    vlan: '',
    mtu: '',
    spoofCheck: true,
    route: { mode: 'auto', serverIPAddr: '', cidr: '', gateway: '' },
  };
}

export function formOf(network: NetworkAttachmentDefinition): NetworkForm {
  const facts = factsOf(network);
  const base = emptyForm(network.metadata.namespace ?? 'default');
  return {
    ...base,
    name: network.metadata.name,
    description: descriptionOf(network),
    on: facts.clusterNetwork ? 'cluster' : 'host',
    clusterNetwork: facts.clusterNetwork,
    bridge: facts.bridge,
    tagged: facts.vlan > 0,
    vlan: facts.vlan || '',
    mtu: facts.mtu ?? '',
    spoofCheck: facts.spoofCheck,
    route: routeOf(network) ?? base.route,
  };
}

/** The object for a form; what `before` has and the form does not know is kept. */
export function build(form: NetworkForm, before?: NetworkAttachmentDefinition): NetworkAttachmentDefinition {
  const { mtu: _mtu, vlan: _vlan, macspoofchk: _check, ...kept } = before ? configOf(before) : {};
  const onCluster = form.on === 'cluster';
  const config = {
    cniVersion: '0.3.1',
    name: form.name,
    type: 'bridge',
    bridge: onCluster ? `${form.clusterNetwork}${bridgeSuffix}` : form.bridge,
    promiscMode: true,
    ipam: {},
    ...kept,
    ...(form.tagged && form.vlan !== '' && { vlan: form.vlan }),
    ...(form.mtu !== '' && { mtu: form.mtu }),
    ...(!onCluster && form.spoofCheck && { macspoofchk: true }),
  };
  const { [descriptionAnnotation]: _description, [routeAnnotation]: _route, ...annotations } = before?.metadata.annotations ?? {};
  // The server works these out of the config; stale ones would contradict it.
  const { 'network.harvesterhci.io/type': _type, 'network.harvesterhci.io/vlan-id': _id, ...labels } = before?.metadata.labels ?? {};
  return {
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: {
      ...before?.metadata,
      name: form.name,
      namespace: form.namespace,
      ...(Object.keys(labels).length > 0 || before ? { labels } : {}),
      annotations: {
        ...annotations,
        ...(form.description && { [descriptionAnnotation]: form.description }),
        ...(form.tagged && { [routeAnnotation]: JSON.stringify(form.route) }),
      },
    },
    spec: { config: JSON.stringify(config) },
  };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

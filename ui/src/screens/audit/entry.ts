import type { AuditEvent } from '@/api/audit';
import type { Kind } from '@/api/kinds';
import { kinds } from '@/api/kinds';
import type { Tone } from '@/parts/StatusBadge';

const tried = 'croft.io/tried-user';

/** Who it was; `unproven` is a name that somebody gave without being able to prove it. */
export interface Who {
  name: string;
  unproven: boolean;
  /** Whom they acted as. */
  as: string | null;
}

export function whoOf(event: AuditEvent): Who {
  const name = event.user.username;
  if (name) return { name, unproven: false, as: event.impersonatedUser?.username ?? null };
  return { name: event.annotations?.[tried] ?? '', unproven: true, as: null };
}

/** One request may be written down more than once, as a connection is. */
export function keyOf(event: AuditEvent): string {
  return `${event.auditID} ${event.stage} ${event.stageTimestamp}`;
}

export function toneOf(code: number | undefined): Tone {
  if (code === undefined) return 'idle';
  if (code >= 500) return 'bad';
  return code >= 400 ? 'warn' : 'ok';
}

const known: readonly Kind[] = Object.values(kinds);

/** Subresources of machines have a group of their own. */
function groupOf(event: AuditEvent): string {
  return (event.objectRef?.apiGroup ?? '').replace(/^subresources\./, '');
}

function kindOf(event: AuditEvent): Kind | undefined {
  return known.find((kind) => kind.plural === event.objectRef?.resource && kind.group === groupOf(event));
}

/** `VirtualMachine/start`, or the path of what is about no object. */
export function subjectOf(event: AuditEvent): string {
  const object = event.objectRef;
  if (!object) return event.requestURI.split('?')[0] ?? '';
  const kind = kindOf(event)?.kind ?? object.resource;
  return object.subresource ? `${kind}/${object.subresource}` : kind;
}

/** Kinds with a screen of their own, and its address. */
const screens: Record<string, string> = {
  'virtualmachines.kubevirt.io': '/machines',
  'virtualmachineinstances.kubevirt.io': '/machines',
  'virtualmachineimages.harvesterhci.io': '/images',
  'virtualmachinetemplates.harvesterhci.io': '/templates',
  'persistentvolumeclaims.': '/volumes',
  'network-attachment-definitions.k8s.cni.cncf.io': '/networks',
  'clusternetworks.network.harvesterhci.io': '/cluster-networks',
  'settings.harvesterhci.io': '/settings',
  'addons.harvesterhci.io': '/addons',
  'namespaces.': '/namespaces',
  'nodes.': '/hosts',
};

/** What has been deleted has no screen any more; Rancher's own objects never had one. */
const rancher = 'management.cattle.io';

export function addressOf(event: AuditEvent): string | null {
  const object = event.objectRef;
  if (!object?.name) return null;
  const group = groupOf(event);
  const gone = event.verb === 'delete' && (event.responseStatus?.code ?? 0) < 300;
  if (gone || group === rancher) return null;
  const kind = kindOf(event);
  const clusterWide = kind ? !kind.namespaced : !object.namespace;
  const name = encodeURIComponent(object.name);
  const place = clusterWide ? name : `${encodeURIComponent(object.namespace ?? '')}/${name}`;
  const screen = screens[`${object.resource}.${group}`];
  if (screen) return `${screen}/${place}`;
  return `/explorer/${group || 'core'}/${object.resource}/${clusterWide ? `_/${name}` : place}`;
}

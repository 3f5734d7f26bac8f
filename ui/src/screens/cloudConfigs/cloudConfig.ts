import { apiVersionOf, kinds } from '@/api/kinds';
import type { ConfigMap } from '@/api/storage';

/** Harvester keeps cloud-config templates in ConfigMaps with a label that says what they are for. */

export const kindLabel = 'harvesterhci.io/cloud-init-template';
export const dataKey = 'cloudInit';

export type ConfigType = 'user' | 'network';

export function typeOf(map: ConfigMap): ConfigType {
  return map.metadata.labels?.[kindLabel] === 'network' ? 'network' : 'user';
}

export function textOf(map: ConfigMap): string {
  return map.data?.[dataKey] ?? '';
}

export function configObject(name: string, namespace: string, type: ConfigType, text: string): ConfigMap {
  return { apiVersion: apiVersionOf(kinds.configMaps), kind: kinds.configMaps.kind, metadata: { name, namespace, labels: { [kindLabel]: type } }, data: { [dataKey]: text } };
}

/** What a new one begins with. */
export const starters: Record<ConfigType, string> = {
  user: `#cloud-config
package_update: true
packages:
  - qemu-guest-agent
runcmd:
  - [systemctl, enable, --now, qemu-guest-agent.service]
`,
  network: `version: 2
ethernets:
  all:
    match:
      name: "e*"
    dhcp4: true
`,
};

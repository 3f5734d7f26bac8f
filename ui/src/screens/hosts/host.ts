import type { Node } from '@/api/core';
import type { VirtualMachineInstance } from '@/api/kubevirt';
import { parseQuantity } from '@/api/quantity';
import { t } from '@/i18n';
import type { Tone } from '@/parts/StatusBadge';

/** A host and what was found out about it elsewhere. */
export interface HostRow {
  node: Node;
  machines: number;
  usage: Record<string, number> | undefined;
}

export type HostState = 'ready' | 'notReady' | 'cordoned' | 'enteringMaintenance' | 'maintenance';

const maintainStatus = 'harvesterhci.io/maintain-status';

export function stateOf(node: Node): HostState {
  const ready = node.status?.conditions?.find((condition) => condition.type === 'Ready');
  if (ready?.status !== 'True') return 'notReady';
  const maintenance = node.metadata.annotations?.[maintainStatus];
  if (maintenance === 'completed') return 'maintenance';
  if (maintenance) return 'enteringMaintenance';
  return node.spec?.unschedulable ? 'cordoned' : 'ready';
}

const tones: Record<HostState, Tone> = { ready: 'ok', notReady: 'bad', cordoned: 'warn', enteringMaintenance: 'busy', maintenance: 'warn' };

export function toneOf(node: Node): Tone {
  return tones[stateOf(node)];
}

/** What the host cannot do, in its own words: conditions that are not as they should be. */
export function troublesOf(node: Node): { type: string; message: string }[] {
  return (node.status?.conditions ?? [])
    .filter(({ type, status }) => (type.endsWith('Pressure') || type === 'Drained' ? type !== 'Drained' && status === 'True' : status === 'False'))
    .map(({ type, message, reason }) => ({ type, message: message || reason || '' }));
}

const rolePrefix = 'node-role.kubernetes.io/';

export function rolesOf(node: Node): string[] {
  return Object.keys(node.metadata.labels ?? {})
    .filter((label) => label.startsWith(rolePrefix))
    .map((label) => label.slice(rolePrefix.length));
}

/** Where machines can be; the roles of Kubernetes say little about that here. */
export function roleText(node: Node): string {
  const roles = rolesOf(node);
  return roles.includes('control-plane') || roles.includes('master') ? t('hosts.manages') : t('hosts.works');
}

export function addressOf(node: Node): string {
  return node.status?.addresses?.find((address) => address.type === 'InternalIP')?.address ?? '';
}

export function capacityOf(node: Node, resource: string): number | undefined {
  return parseQuantity(node.status?.capacity?.[resource]);
}

export function machinesOn(instances: readonly VirtualMachineInstance[], node: string): VirtualMachineInstance[] {
  return instances.filter((instance) => instance.status?.nodeName === node);
}

/** How the clock of the host is kept: an annotation, in JSON. */
export function clockOf(node: Node): { status: string; servers: string; message: string } | null {
  try {
    const raw = JSON.parse(node.metadata.annotations?.['node.harvesterhci.io/ntp-service'] ?? 'null') as Record<string, string> | null;
    return raw && { status: raw['ntpSyncStatus'] ?? '', servers: raw['currentNtpServers'] ?? '', message: raw['message'] ?? '' };
  } catch {
    return null;
  }
}

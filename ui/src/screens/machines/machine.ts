import type { VirtualMachine, VirtualMachineInstance, Volume } from '@/api/kubevirt';
import { parseQuantity } from '@/api/quantity';
import type { PersistentVolumeClaim } from '@/api/core';
import type { Tone } from '@/parts/StatusBadge';
import { keyOf } from '@/api/collection';

/** What a machine's object says, in the words of the page. */

export interface MachineRow {
  machine: VirtualMachine;
  /** Only while it runs. */
  instance: VirtualMachineInstance | undefined;
}

export function stateOf(machine: VirtualMachine): string {
  if (machine.metadata.deletionTimestamp) return 'Terminating';
  return machine.status?.printableStatus ?? 'Unknown';
}

const tones: Record<string, Tone> = {
  Running: 'ok',
  Stopped: 'idle',
  Halted: 'idle',
  Unknown: 'idle',
  Paused: 'warn',
  Starting: 'busy',
  Stopping: 'busy',
  Terminating: 'busy',
  Migrating: 'busy',
  Provisioning: 'busy',
  WaitingForVolumeBinding: 'busy',
  WaitingForReceiver: 'busy',
};

/** What is not known by name has failed in one of many ways. */
export function toneOf(state: string): Tone {
  return tones[state] ?? 'bad';
}

/** Why a machine is not as it should be, if it says so. */
export function troubleOf({ machine, instance }: MachineRow): string | undefined {
  const failing = [...(machine.status?.conditions ?? []), ...(instance?.status?.conditions ?? [])].find(
    (condition) =>
      (condition.type === 'Failure' && condition.status === 'True') ||
      (condition.type === 'Synchronized' && condition.status === 'False') ||
      (condition.type === 'PodScheduled' && condition.status === 'False'),
  );
  return failing?.message || machine.metadata.annotations?.['harvesterhci.io/insufficient-resource-quota'];
}

export function cpusOf(machine: VirtualMachine): number {
  const cpu = machine.spec.template.spec.domain.cpu;
  return (cpu?.sockets ?? 1) * (cpu?.cores ?? 1) * (cpu?.threads ?? 1);
}

export function memoryOf(machine: VirtualMachine): number | undefined {
  const { memory, resources } = machine.spec.template.spec.domain;
  return parseQuantity(memory?.guest ?? resources?.limits?.['memory'] ?? resources?.requests?.['memory']);
}

export function addressesOf(instance: VirtualMachineInstance | undefined): string[] {
  const found = (instance?.status?.interfaces ?? []).flatMap((each) => each.ipAddresses ?? (each.ipAddress ? [each.ipAddress] : []));
  return [...new Set(found)].filter((address) => !address.startsWith('fe80:'));
}

export function nodeOf({ instance }: MachineRow): string {
  return instance?.status?.nodeName ?? '';
}

export function guestOf(instance: VirtualMachineInstance | undefined): string {
  return instance?.status?.guestOSInfo?.['prettyName'] ?? '';
}

export const claimTemplatesAnnotation = 'harvesterhci.io/volumeClaimTemplates';

/** The claims that Harvester makes for a machine, from its annotation. */
export function claimTemplatesOf(machine: { metadata?: { annotations?: Record<string, string> } }): PersistentVolumeClaim[] {
  try {
    const parsed: unknown = JSON.parse(machine.metadata?.annotations?.[claimTemplatesAnnotation] ?? '[]');
    return Array.isArray(parsed) ? (parsed as PersistentVolumeClaim[]) : [];
  } catch {
    return [];
  }
}

export function claimOf(volume: Volume): string | undefined {
  return volume.persistentVolumeClaim?.claimName ?? volume.dataVolume?.name;
}

export function claimsOf(machine: VirtualMachine): string[] {
  return (machine.spec.template.spec.volumes ?? []).map(claimOf).filter((claim) => claim !== undefined);
}

const rows = new WeakMap<VirtualMachine, MachineRow>();

export interface Joined {
  machines: readonly VirtualMachine[];
  instances: readonly VirtualMachineInstance[];
  rows: readonly MachineRow[];
}

/**
 * Joins machines with their instances; a row stays the very same while neither has changed. With what came of it before,
 * a change to a few of ten thousand machines needs no look at the others.
 */
export function joinRows(machines: readonly VirtualMachine[], instances: readonly VirtualMachineInstance[], before?: Joined): MachineRow[] {
  const running = new Map(instances.map((instance) => [keyOf(instance), instance]));
  const same = before?.instances === instances ? before : undefined;
  return machines.map((machine, index) => {
    const unmoved = same?.machines[index] === machine ? same.rows[index] : undefined;
    if (unmoved) return unmoved;
    const instance = running.get(keyOf(machine));
    const known = rows.get(machine);
    if (known && known.instance === instance) return known;
    const row = { machine, instance };
    rows.set(machine, row);
    return row;
  });
}

/** Labels that people gave, without those that programs put there. */
export function ownLabels(labels: Record<string, string> | undefined): [string, string][] {
  return Object.entries(labels ?? {}).filter(([key]) => !/(^|\.)(kubevirt|harvesterhci|kubernetes|k8s|cattle)\.io\//.test(key));
}

import type { PersistentVolumeClaim } from '@/api/core';
import type { VirtualMachine } from '@/api/kubevirt';
import { parseQuantity } from '@/api/quantity';
import type { Key } from '@/i18n';
import type { Tone } from '@/parts/StatusBadge';
import { claimsOf } from '../machines/machine';

export function sizeOf(volume: PersistentVolumeClaim): number | undefined {
  return parseQuantity(volume.status?.capacity?.storage ?? volume.spec?.resources?.requests?.storage);
}

export function volumeState(volume: PersistentVolumeClaim): { tone: Tone; label: Key; message?: string } {
  const resizing = volume.status?.conditions?.find((condition) => condition.type === 'Resizing' || condition.type === 'FileSystemResizePending');
  if (resizing?.status === 'True') {
    const message = resizing.message && { message: resizing.message };
    // The server tries again until there is room, and says so in the condition's reason.
    return resizing.reason === 'VolumeResizeFailed' ? { tone: 'bad', label: 'volumes.cannotGrow', ...message } : { tone: 'busy', label: 'volumes.resizing', ...message };
  }
  if (volume.status?.phase === 'Bound') return { tone: 'ok', label: 'volumes.bound' };
  if (volume.status?.phase === 'Lost') return { tone: 'bad', label: 'volumes.lost' };
  return { tone: 'busy', label: 'volumes.pending' };
}

export function imageOf(volume: PersistentVolumeClaim): string | undefined {
  return volume.metadata.annotations?.['harvesterhci.io/imageId'];
}

/** `namespace/claim` to the machines that have it as a disk. */
export function usersOf(machines: readonly VirtualMachine[]): Map<string, string[]> {
  const users = new Map<string, string[]>();
  for (const machine of machines) {
    for (const claim of claimsOf(machine)) {
      const key = `${machine.metadata.namespace}/${claim}`;
      users.set(key, [...(users.get(key) ?? []), machine.metadata.name]);
    }
  }
  return users;
}

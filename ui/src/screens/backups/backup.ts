import type { VirtualMachineBackup, VirtualMachineRestore } from '@/api/harvester';
import type { Tone } from '@/parts/StatusBadge';
import { scheduleAnnotation } from '@/screens/schedules/schedule';

/** What kept machines (snapshots and backups) and restores say, in the words of the page. */

export type KeptType = 'snapshot' | 'backup';

export function typeOf(backup: VirtualMachineBackup): KeptType {
  return backup.spec.type ?? 'backup';
}

/** Where its screen is: both types are one kind, but not one list. */
export function areaOf(type: KeptType): string {
  return type === 'snapshot' ? '/snapshots' : '/backups';
}

export const isSnapshot = (backup: VirtualMachineBackup) => typeOf(backup) === 'snapshot';
export const isBackup = (backup: VirtualMachineBackup) => typeOf(backup) === 'backup';

export function machineOf(backup: VirtualMachineBackup): string {
  return backup.spec.source.name;
}

export function takenAt(backup: VirtualMachineBackup): string | undefined {
  return backup.status?.creationTime ?? backup.metadata.creationTimestamp;
}

/** The size of all its disks. */
export function sizeOf(backup: VirtualMachineBackup): number | undefined {
  const sizes = (backup.status?.volumeBackups ?? []).map((volume) => volume.volumeSize ?? 0);
  const sum = sizes.reduce((total, size) => total + size, 0);
  return sum > 0 ? sum : undefined;
}

/** `namespace/name` of the schedule that made it. */
export function scheduleOf(backup: VirtualMachineBackup): string | undefined {
  return backup.metadata.annotations?.[scheduleAnnotation];
}

export const memoryAnnotation = 'croft.io/memory';
/** Never deleted by a count or an age. */
export const keepAnnotation = 'croft.io/keep';
const speedAnnotation = 'croft.io/bytes-per-second';

export function isPinned(backup: VirtualMachineBackup): boolean {
  return backup.metadata.annotations?.[keepAnnotation] === 'true';
}

/** How fast it is sent, while it is. */
export function speedOf(backup: VirtualMachineBackup): number | undefined {
  const speed = Number(backup.metadata.annotations?.[speedAnnotation]);
  return speed > 0 && !backup.status?.readyToUse ? speed : undefined;
}

export type BackupState = 'ready' | 'running' | 'failed' | 'deleting' | 'keyNeeded';

export const backupTones: Record<BackupState, Tone> = { ready: 'ok', running: 'busy', failed: 'bad', deleting: 'busy', keyNeeded: 'warn' };

export function stateOf(backup: VirtualMachineBackup): { state: BackupState; message: string | undefined } {
  const { status } = backup;
  if (backup.metadata.deletionTimestamp) return { state: 'deleting', message: status?.error?.message };
  const metadata = status?.conditions?.find((condition) => condition.type === 'MetadataReady');
  if (metadata?.reason === 'KeyNeeded') return { state: 'keyNeeded', message: metadata.message };
  if (status?.readyToUse) return { state: 'ready', message: undefined };
  if (status?.error?.message) return { state: 'failed', message: status.error.message };
  return { state: 'running', message: undefined };
}

export type RestoreState = 'complete' | 'running' | 'failed';

export const restoreTones: Record<RestoreState, Tone> = { complete: 'ok', running: 'busy', failed: 'bad' };

/** A restore tells in a condition what it does, and what went wrong. */
export function restoreStateOf(restore: VirtualMachineRestore): { state: RestoreState; message: string | undefined } {
  if (restore.status?.complete) return { state: 'complete', message: undefined };
  const conditions = restore.status?.conditions ?? [];
  const failed = conditions.find((condition) => condition.reason === 'Error' || (condition.type === 'InProgress' && condition.status === 'False' && condition.message !== 'Operation complete'));
  if (failed?.message) return { state: 'failed', message: failed.message };
  return { state: 'running', message: conditions.find((condition) => condition.type === 'InProgress')?.message };
}

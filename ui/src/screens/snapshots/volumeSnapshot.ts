import { apiVersionOf, kinds } from '@/api/kinds';
import type { VolumeSnapshot } from '@/api/storage';
import type { Tone } from '@/parts/StatusBadge';

export type SnapshotState = 'ready' | 'running' | 'failed' | 'deleting';

export const snapshotTones: Record<SnapshotState, Tone> = { ready: 'ok', running: 'busy', failed: 'bad', deleting: 'busy' };

export function stateOf(snapshot: VolumeSnapshot): { state: SnapshotState; message: string | undefined } {
  if (snapshot.metadata.deletionTimestamp) return { state: 'deleting', message: undefined };
  if (snapshot.status?.readyToUse) return { state: 'ready', message: undefined };
  if (snapshot.status?.error?.message) return { state: 'failed', message: snapshot.status.error.message };
  return { state: 'running', message: undefined };
}

export function volumeOf(snapshot: VolumeSnapshot): string | undefined {
  return snapshot.spec.source.persistentVolumeClaimName;
}

/** The machine's snapshot or backup that this one is a part of. */
export function ownerOf(snapshot: VolumeSnapshot): string | undefined {
  return snapshot.metadata.ownerReferences?.find((owner) => owner.kind === 'VirtualMachineBackup')?.name;
}

export function takenAt(snapshot: VolumeSnapshot): string | undefined {
  return snapshot.status?.creationTime ?? snapshot.metadata.creationTimestamp;
}

export function snapshotObject(name: string, namespace: string, volume: string, snapshotClass: string): VolumeSnapshot {
  return {
    apiVersion: apiVersionOf(kinds.volumeSnapshots),
    kind: kinds.volumeSnapshots.kind,
    metadata: { name, namespace },
    spec: { source: { persistentVolumeClaimName: volume }, ...(snapshotClass && { volumeSnapshotClassName: snapshotClass }) },
  };
}

/** How the guest was when it was taken, as the node wrote it down. */
export function guestOf(snapshot: VolumeSnapshot): { running: boolean; frozen: boolean; pauseMs: number } | null {
  try {
    const parsed: unknown = JSON.parse(snapshot.metadata.annotations?.['croft.io/snapshot-guest'] ?? '');
    const guest = parsed as { isRunning?: boolean; isFrozen?: boolean; pauseMs?: number };
    return { running: guest.isRunning === true, frozen: guest.isFrozen === true, pauseMs: guest.pauseMs ?? 0 };
  } catch {
    return null;
  }
}

import type { VolumeSnapshot } from '@/api/storage';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import { snapshotTones, stateOf } from './volumeSnapshot';

export function VolumeSnapshotState({ snapshot }: { snapshot: VolumeSnapshot }) {
  const { state, message } = stateOf(snapshot);
  return <StatusBadge tone={snapshotTones[state]} label={t(`backups.${state}`)} {...(message && { hint: message })} />;
}

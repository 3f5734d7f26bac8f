import type { PersistentVolumeClaim } from '@/api/core';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import { volumeState } from './volume';

export function VolumeStateCell({ volume }: { volume: PersistentVolumeClaim }) {
  const { tone, label, message } = volumeState(volume);
  return <StatusBadge tone={tone} label={t(label)} {...(message && { hint: message })} />;
}

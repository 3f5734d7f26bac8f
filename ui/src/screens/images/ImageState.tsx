import { Group, Progress } from '@mantine/core';
import type { VirtualMachineImage } from '@/api/harvester';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import { imageState } from './image';

export function ImageStateCell({ image }: { image: VirtualMachineImage }) {
  const { tone, label, message, progress } = imageState(image);
  return (
    <Group gap="sm" wrap="nowrap">
      <StatusBadge tone={tone} label={t(label)} {...(message && { hint: message })} />
      {progress !== undefined && <Progress w={80} value={progress} aria-label={t('images.progress')} />}
    </Group>
  );
}

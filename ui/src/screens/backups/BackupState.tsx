import { Group, Progress, Text } from '@mantine/core';
import type { VirtualMachineBackup, VirtualMachineRestore } from '@/api/harvester';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import { backupTones, restoreStateOf, restoreTones, speedOf, stateOf } from './backup';

/** How a snapshot or a backup is; while it is made, how far and how fast. */
export function KeptState({ backup }: { backup: VirtualMachineBackup }) {
  const { state, message } = stateOf(backup);
  const badge = <StatusBadge tone={backupTones[state]} label={t(`backups.${state}`)} {...(message && { hint: message })} />;
  if (state !== 'running') return badge;
  return <Group gap="sm" wrap="nowrap">{badge}<HowFar value={backup.status?.progress} speed={speedOf(backup)} /></Group>;
}

export function RestoreStateCell({ restore }: { restore: VirtualMachineRestore }) {
  const { state, message } = restoreStateOf(restore);
  const badge = <StatusBadge tone={restoreTones[state]} label={t(`backups.restore${state}`)} {...(message && { hint: message })} />;
  if (state !== 'running') return badge;
  return <Group gap="sm" wrap="nowrap">{badge}<HowFar value={restore.status?.progress} /></Group>;
}

export function HowFar({ value, speed }: { value: number | undefined; speed?: number | undefined }) {
  if (!value) return null;
  return (
    <Group gap={8} wrap="nowrap">
      <Progress w={80} value={value} aria-label={t('common.progress')} />
      <Text size="xs" c="dimmed" style={{ whiteSpace: 'nowrap' }}>{value} %{speed !== undefined && ` · ${t('backups.perSecond', { amount: formatBytes(speed, language()) })}`}</Text>
    </Group>
  );
}

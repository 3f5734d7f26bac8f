import { Menu } from '@mantine/core';
import { IconHistory, IconPin, IconPinnedOff, IconShieldCheck } from '@tabler/icons-react';
import { mergePatch } from '@/api/client';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { say, sayError } from '@/parts/notify';
import type { KeptType } from './backup';
import { isBackup, isPinned, keepAnnotation, machineOf } from './backup';
import { RestoreKept } from './RestoreKept';
import { RetentionDialog } from './RetentionDialog';

export function deleteHelp(type: KeptType): string {
  return t(type === 'snapshot' ? 'detail.deleteSnapshotHelp' : 'detail.deleteBackupHelp');
}

/** What can be done with a snapshot or a backup, besides deleting it. */
export function KeptItems({ backup }: { backup: VirtualMachineBackup }) {
  const { namespace = '', name } = backup.metadata;
  const can = useCan(namespace);
  const pinned = isPinned(backup);
  const Pin = pinned ? IconPinnedOff : IconPin;
  return (
    <>
      {can('create', kinds.restores) && (
        <Menu.Item leftSection={<IconHistory size={16} />} disabled={!backup.status?.readyToUse} onClick={() => openDialog((close) => <RestoreKept backup={backup} onClose={close} />)}>{t('detail.restore')}</Menu.Item>
      )}
      {isBackup(backup) && can('update', kinds.backups, name) && (
        <Menu.Item leftSection={<Pin size={16} />} onClick={() => pin(backup, !pinned)}>{t(pinned ? 'backups.unpin' : 'backups.pin')}</Menu.Item>
      )}
      {isBackup(backup) && can('update', kinds.machines, machineOf(backup)) && (
        <Menu.Item leftSection={<IconShieldCheck size={16} />} onClick={() => openDialog((close) => <RetentionDialog namespace={namespace} name={machineOf(backup)} onClose={close} />)}>{t('backups.retention')}</Menu.Item>
      )}
    </>
  );
}

function pin(backup: VirtualMachineBackup, keep: boolean): void {
  mergePatch(kinds.backups, backup, { metadata: { annotations: { [keepAnnotation]: keep ? 'true' : null } } }).then(
    () => say(t('common.actionDone', { action: t(keep ? 'backups.pin' : 'backups.unpin'), name: backup.metadata.name })),
    (error: unknown) => sayError(backup.metadata.name, error),
  );
}

import { Alert, Table } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import type { VirtualMachineRestore } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { Time } from '@/parts/Time';
import { restoreStateOf } from './backup';
import { HowFar, RestoreStateCell } from './BackupState';
import { wayOf } from './RestoreList';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.restores}
      area="/restores"
      parent={t('backups.restores')}
      meta={(restore) => <RestoreStateCell restore={restore} />}
      facts={(restore) => [
        [t('backups.machine'), <Link key="machine" to={`/machines/${restore.metadata.namespace}/${restore.spec.target.name}`}>{restore.spec.target.name}</Link>],
        [t('backups.from'), <Link key="backup" to={`/backups/${restore.spec.virtualMachineBackupNamespace}/${restore.spec.virtualMachineBackupName}`}>{restore.spec.virtualMachineBackupName}</Link>],
        [t('backups.way'), wayOf(restore)],
        [t('backups.oldDisks'), !restore.spec.newVM && t(restore.spec.deletionPolicy === 'delete' ? 'backups.oldDeleted' : 'backups.oldKept')],
        [t('detail.restoreKeepMac'), restore.spec.keepMacAddress && t('common.yes')],
        [t('detail.restoreHalted'), restore.spec.haltAfterRestore && t('common.yes')],
        [t('backups.doneAt'), restore.status?.restoreTime && <Time key="done" at={restore.status.restoreTime} />],
      ]}
      body={(restore) => <Body restore={restore} />}
      deleteHelp={t('backups.deleteRestoreHelp')}
    />
  );
}

function Body({ restore }: { restore: VirtualMachineRestore }) {
  const { state, message } = restoreStateOf(restore);
  const disks = restore.status?.restores ?? [];
  const replaced = restore.status?.deletedVolumes ?? [];
  return (
    <>
      {message && <Alert color={state === 'failed' ? 'red' : 'croft'} title={t(`backups.restore${state}`)}>{message}</Alert>}
      <Card title={t('detail.disks')}>
        <Table.ScrollContainer minWidth={480}>
          <Table verticalSpacing="sm">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('common.name')}</Table.Th>
                <Table.Th>{t('backups.volume')}</Table.Th>
                <Table.Th>{t('common.size')}</Table.Th>
                <Table.Th>{t('common.progress')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {disks.map((disk) => (
                <Table.Tr key={disk.volumeName}>
                  <Table.Td fw={560}>{disk.volumeName}</Table.Td>
                  <Table.Td style={{ overflowWrap: 'anywhere' }}>{disk.persistentVolumeClaimSpec?.metadata?.name}</Table.Td>
                  <Table.Td>{formatBytes(disk.volumeSize, language())}</Table.Td>
                  <Table.Td>{state === 'complete' ? t('backups.restorecomplete') : <HowFar value={disk.progress} />}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
        {replaced.length > 0 && <p>{t('backups.oldDisks')}: {replaced.join(', ')}</p>}
      </Card>
    </>
  );
}

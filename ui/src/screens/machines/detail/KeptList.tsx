import { Button, Group, Table } from '@mantine/core';
import { IconCamera, IconCloudUpload } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { deleteObject } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { Card } from '@/parts/Page';
import { States } from '@/parts/States';
import { Time } from '@/parts/Time';
import { areaOf } from '@/screens/backups/backup';
import { KeptState } from '@/screens/backups/BackupState';
import { KeepDialog } from '../dialogs/KeepDialog';
import { RestoreDialog } from '../dialogs/RestoreDialog';
import type { MachineRow } from '../machine';

type Kept = 'snapshot' | 'backup';

/** The snapshots or the backups of one machine. */
export function KeptList({ row, type }: { row: MachineRow; type: Kept }) {
  const { namespace = '', name } = row.machine.metadata;
  const can = useCan(namespace);
  const all = useCollection(kinds.backups, { namespace });
  const items = useMemo(
    () =>
      all.items
        .filter((backup) => backup.spec.source.name === name && (backup.spec.type ?? 'backup') === type)
        .sort((a, b) => (b.metadata.creationTimestamp ?? '').localeCompare(a.metadata.creationTimestamp ?? '')),
    [all.items, name, type],
  );
  const make = can('create', kinds.backups) && <Button size="xs" variant="default" leftSection={type === 'snapshot' ? <IconCamera size={14} /> : <IconCloudUpload size={14} />} onClick={() => openDialog((close) => <KeepDialog row={row} type={type} onClose={close} />)}>{t(`machines.${type}`)}</Button>;
  const blank = type === 'snapshot' ? <Blank icon={IconCamera} title={t('detail.noSnapshots')} text={t('detail.noSnapshotsHelp')}>{make}</Blank> : <Blank icon={IconCloudUpload} title={t('detail.noBackups')} text={t('detail.noBackupsHelp')}>{make}</Blank>;
  return (
    <Card title={t(type === 'snapshot' ? 'detail.snapshots' : 'detail.backups')} actions={items.length > 0 && make}>
      <States snapshot={{ ...all, items }} empty={blank}>
        <Table.ScrollContainer minWidth={520}>
          <Table verticalSpacing="sm">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('common.name')}</Table.Th>
                <Table.Th>{t('common.state')}</Table.Th>
                <Table.Th>{t('detail.taken')}</Table.Th>
                <Table.Th />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {items.map((backup) => (
                <Table.Tr key={backup.metadata.uid}>
                  <Table.Td fw={560} style={{ overflowWrap: 'anywhere' }}><Link to={objectAddress(areaOf(type), backup)}>{backup.metadata.name}</Link></Table.Td>
                  <Table.Td><KeptState backup={backup} /></Table.Td>
                  <Table.Td><Time at={backup.status?.creationTime ?? backup.metadata.creationTimestamp} /></Table.Td>
                  <Table.Td>
                    <Group gap={6} justify="flex-end" wrap="nowrap">
                      {can('create', kinds.restores) && <Button size="compact-sm" variant="subtle" disabled={!backup.status?.readyToUse} onClick={() => openDialog((close) => <RestoreDialog backup={backup} row={row} onClose={close} />)}>{t('detail.restore')}</Button>}
                      {can('delete', kinds.backups) && <Button size="compact-sm" variant="subtle" color="red" onClick={() => remove(backup, type)}>{t('common.delete')}</Button>}
                    </Group>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </States>
    </Card>
  );
}

function remove(backup: VirtualMachineBackup, type: Kept): void {
  ask({
    title: t('detail.deleteKept', { name: backup.metadata.name }),
    body: t(type === 'snapshot' ? 'detail.deleteSnapshotHelp' : 'detail.deleteBackupHelp'),
    confirm: t('common.delete'),
    dangerous: true,
    run: () => deleteObject(kinds.backups, backup),
  });
}

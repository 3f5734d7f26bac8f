import { Table } from '@mantine/core';
import { IconDatabase } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import type { BackupVolume, LonghornBackup } from '@/api/storage';
import { objectAddress } from '@/app/address';
import { language, t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { States } from '@/parts/States';
import type { Tone } from '@/parts/StatusBadge';
import { StatusBadge } from '@/parts/StatusBadge';
import { Time } from '@/parts/Time';
import { HowFar } from './BackupState';

const size = (text: string | undefined) => text && formatBytes(Number(text), language());

export function Screen() {
  return (
    <KindDetail
      kind={kinds.backupVolumes}
      area="/backup-volumes"
      parent={t('backups.stored')}
      titleOf={(volume) => volume.spec?.volumeName ?? volume.metadata.name}
      facts={(volume) => [
        [t('backups.diskSize'), size(volume.status?.size)],
        [t('backups.takesUp'), size(volume.status?.dataStored)],
        [t('create.storageClass'), volume.status?.storageClassName],
        [t('backups.lastBackup'), <Time key="last" at={volume.status?.lastBackupAt} />],
        [t('backups.lookedAt'), <Time key="synced" at={volume.status?.lastSyncedAt} />],
      ]}
      body={(volume) => <Card title={t('backups.title')}><Backups volume={volume} /></Card>}
      deleteHelp={t('backups.deleteStoredHelp')}
    />
  );
}

const tones: Record<string, Tone> = { Completed: 'ok', InProgress: 'busy', Pending: 'busy', Error: 'bad', Unknown: 'idle' };

function Backups({ volume }: { volume: BackupVolume }) {
  const name = volume.spec?.volumeName ?? volume.metadata.name;
  const stored = useCollection(kinds.volumeBackups, { namespace: volume.metadata.namespace ?? 'longhorn-system', labelSelector: `backup-volume=${name}` });
  const machines = useCollection(kinds.backups).items;
  const owners = useMemo(() => new Map(machines.flatMap((backup) => (backup.status?.volumeBackups ?? []).map((disk) => [disk.longhornBackupName ?? '', backup] as const))), [machines]);
  const items = useMemo(() => [...stored.items].sort((a, b) => (timeOf(b) ?? '').localeCompare(timeOf(a) ?? '')), [stored.items]);
  return (
    <States snapshot={stored} empty={<Blank icon={IconDatabase} title={t('detail.noBackups')} />}>
      <Table.ScrollContainer minWidth={680}>
        <Table verticalSpacing="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('common.name')}</Table.Th>
              <Table.Th>{t('common.state')}</Table.Th>
              <Table.Th>{t('backups.partOf')}</Table.Th>
              <Table.Th>{t('backups.data')}</Table.Th>
              <Table.Th>{t('backups.sent')}</Table.Th>
              <Table.Th>{t('backups.compression')}</Table.Th>
              <Table.Th>{t('detail.taken')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {items.map((backup) => {
              const owner = owners.get(backup.metadata.name);
              const state = backup.status?.state ?? '';
              return (
                <Table.Tr key={backup.metadata.uid}>
                  <Table.Td fw={560}>{backup.metadata.name}</Table.Td>
                  <Table.Td><StatusBadge tone={tones[state] ?? 'idle'} label={state} {...(backup.status?.error && { hint: backup.status.error })} />{state === 'InProgress' && <HowFar value={backup.status?.progress} />}</Table.Td>
                  <Table.Td>{owner ? <Link to={objectAddress('/backups', owner)}>{owner.metadata.name}</Link> : '–'}</Table.Td>
                  <Table.Td>{size(backup.status?.size)}</Table.Td>
                  <Table.Td>{size(backup.status?.newlyUploadDataSize)}</Table.Td>
                  <Table.Td>{backup.status?.compressionMethod}</Table.Td>
                  <Table.Td style={{ whiteSpace: 'nowrap' }}><Time at={timeOf(backup)} /></Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </States>
  );
}

function timeOf(backup: LonghornBackup): string | undefined {
  return backup.status?.snapshotCreatedAt ?? backup.status?.backupCreatedAt ?? backup.metadata.creationTimestamp;
}

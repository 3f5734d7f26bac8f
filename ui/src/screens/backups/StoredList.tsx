import { IconDatabase } from '@tabler/icons-react';
import { useMemo } from 'react';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import type { BackupVolume } from '@/api/storage';
import { language, t } from '@/i18n';
import { nameColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import type { Column } from '@/parts/table/columns';
import { Time } from '@/parts/Time';
import { BackupSections } from './BackupSections';

/** What is in the target, volume by volume, whoever put it there. */
export function Screen() {
  const columns = useMemo(() => volumeColumns(), []);
  return (
    <KindList
      kind={kinds.backupVolumes}
      area="/backup-volumes"
      title={t('backups.stored')}
      icon={IconDatabase}
      columns={columns}
      everywhere
      emptyTitle={t('backups.noStored')}
      emptyHelp={t('backups.noStoredHelp')}
      deleteHelp={t('backups.deleteStoredHelp')}
      below={<BackupSections current="/backup-volumes" />}
    />
  );
}

function bytes(text: string | undefined): number | undefined {
  return text ? Number(text) : undefined;
}

function volumeColumns(): Column<BackupVolume>[] {
  return [
    nameColumn('/backup-volumes', (volume) => volume.spec?.volumeName ?? volume.metadata.name),
    { id: 'size', title: t('backups.diskSize'), value: (volume) => bytes(volume.status?.size), cell: (volume) => formatBytes(bytes(volume.status?.size), language()), width: '120px', align: 'end', unsearched: true },
    { id: 'stored', title: t('backups.takesUp'), value: (volume) => bytes(volume.status?.dataStored), cell: (volume) => formatBytes(bytes(volume.status?.dataStored), language()), width: '120px', align: 'end', unsearched: true, phone: true },
    { id: 'class', title: t('create.storageClass'), value: (volume) => volume.status?.storageClassName },
    { id: 'last', title: t('backups.lastBackup'), value: (volume) => -Date.parse(volume.status?.lastBackupAt ?? ''), cell: (volume) => <Time at={volume.status?.lastBackupAt} />, width: '140px', unsearched: true },
    { id: 'first', title: t('common.created'), value: (volume) => -Date.parse(volume.status?.createdAt ?? ''), cell: (volume) => <Time at={volume.status?.createdAt} />, width: '140px', unsearched: true },
  ];
}

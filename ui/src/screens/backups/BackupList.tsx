import { Alert, Button, Group } from '@mantine/core';
import { IconCloudUpload, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useObject } from '@/api/collections';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column } from '@/parts/table/columns';
import { isBackup, speedOf } from './backup';
import { BackupSections } from './BackupSections';
import { ChooseMachine } from './ChooseMachine';
import { keptColumns, keptFacets } from './keptColumns';
import { deleteHelp, KeptItems } from './KeptItems';

export function Screen() {
  const columns = useMemo(() => backupColumns(), []);
  const facets = useMemo(() => keptFacets(), []);
  return (
    <KindList
      kind={kinds.backups}
      area="/backups"
      title={t('backups.title')}
      icon={IconCloudUpload}
      columns={columns}
      facets={facets}
      filter={isBackup}
      emptyTitle={t('detail.noBackups')}
      emptyHelp={t('detail.noBackupsHelp')}
      create={<CreateButton />}
      menu={backupMenu}
      deleteHelp={deleteHelp('backup')}
      defaultSort={{ column: 'taken', descending: false }}
      below={<><BackupSections current="/backups" /><TargetNote /></>}
    />
  );
}

const backupMenu = (backup: VirtualMachineBackup) => <KeptItems backup={backup} />;

function backupColumns(): Column<VirtualMachineBackup>[] {
  return [
    ...keptColumns('backup'),
    { id: 'speed', title: t('backups.speed'), value: speedOf, cell: (backup) => (speedOf(backup) ? t('backups.perSecond', { amount: formatBytes(speedOf(backup), language()) }) : '–'), width: '110px', align: 'end', unsearched: true, hidden: true },
    { id: 'target', title: t('backups.target'), value: (backup) => backup.status?.backupTarget?.endpoint || backup.status?.backupTarget?.bucketName, hidden: true },
  ];
}

function CreateButton() {
  const may = useMayCreate(kinds.backups);
  return may ? <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <ChooseMachine type="backup" onClose={close} />)}>{t('machines.backup')}</Button> : null;
}

/** Without a target nothing can be backed up, and one that is away stops everything. */
function TargetNote() {
  const setting = useObject(kinds.settings, undefined, 'backup-target');
  if (setting.snapshot.phase !== 'ready' || !setting.object) return null;
  const configured = setting.object.status?.conditions?.find((condition) => condition.type === 'configured');
  const missing = !setting.object.value || setting.object.value === '{}';
  if (!missing && configured?.status !== 'False') return null;
  return (
    <Alert color={missing ? 'croft' : 'red'} title={missing ? t('backups.noTarget') : t('backups.targetAway')} mb="md">
      <Group justify="space-between">
        <span>{missing ? t('backups.noTargetHelp') : configured?.message}</span>
        <Button size="xs" variant="default" component={Link} to="/backup-target">{t('backups.toTarget')}</Button>
      </Group>
    </Alert>
  );
}

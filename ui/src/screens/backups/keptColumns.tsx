import { Group, Tooltip } from '@mantine/core';
import { IconPin } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import type { VirtualMachineBackup } from '@/api/harvester';
import { formatBytes } from '@/api/quantity';
import { objectAddress } from '@/app/address';
import { language, t } from '@/i18n';
import { namespaceColumn } from '@/parts/kind/columns';
import type { Column, Facet } from '@/parts/table/columns';
import { Time } from '@/parts/Time';
import type { BackupState, KeptType } from './backup';
import { areaOf, isPinned, machineOf, scheduleOf, sizeOf, stateOf, takenAt } from './backup';
import { KeptState } from './BackupState';

/** The columns that snapshots and backups have in common. */
export function keptColumns(type: KeptType): Column<VirtualMachineBackup>[] {
  return [
    { id: 'name', title: t('common.name'), value: (backup) => backup.metadata.name, cell: (backup) => <NameCell backup={backup} area={areaOf(type)} />, width: 'minmax(180px, 2fr)', phone: true },
    { id: 'state', title: t('common.state'), value: (backup) => t(`backups.${stateOf(backup).state}`), cell: (backup) => <KeptState backup={backup} />, width: type === 'backup' ? 'minmax(150px, 1.6fr)' : '150px', phone: true },
    { id: 'machine', title: t('backups.machine'), value: machineOf, cell: (backup) => <Link to={`/machines/${backup.metadata.namespace}/${machineOf(backup)}`}>{machineOf(backup)}</Link> },
    namespaceColumn(),
    { id: 'size', title: t('backups.diskSize'), value: sizeOf, cell: (backup) => formatBytes(sizeOf(backup), language()), width: '110px', align: 'end', unsearched: true },
    { id: 'schedule', title: t('backups.schedule'), value: scheduleOf, cell: (backup) => <ScheduleCell id={scheduleOf(backup)} /> },
    { id: 'taken', title: t('detail.taken'), value: (backup) => -Date.parse(takenAt(backup) ?? ''), cell: (backup) => <Time at={takenAt(backup)} />, width: '124px', unsearched: true },
  ];
}

function NameCell({ backup, area }: { backup: VirtualMachineBackup; area: string }) {
  return (
    <Group gap={6} wrap="nowrap">
      <Link to={objectAddress(area, backup)} style={{ overflow: 'hidden', textOverflow: 'ellipsis' }}>{backup.metadata.name}</Link>
      {isPinned(backup) && <Tooltip label={t('backups.pinned')}><IconPin size={14} role="img" aria-label={t('backups.pinned')} /></Tooltip>}
    </Group>
  );
}

export function ScheduleCell({ id }: { id: string | undefined }) {
  if (!id) return <>–</>;
  return <Link to={`/schedules/${id}`}>{id.split('/')[1] ?? id}</Link>;
}

export function keptFacets(): Facet<VirtualMachineBackup>[] {
  return [
    { id: 'state', title: t('common.state'), values: (backup) => [stateOf(backup).state], label: (state) => t(`backups.${state as BackupState}`) },
    { id: 'machine', title: t('backups.machine'), values: (backup) => [machineOf(backup)] },
    { id: 'schedule', title: t('backups.schedule'), values: (backup) => [scheduleOf(backup) ?? ''].filter(Boolean) },
  ];
}

import { IconHistory } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { VirtualMachineRestore } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import type { Column, Facet } from '@/parts/table/columns';
import type { RestoreState } from './backup';
import { restoreStateOf } from './backup';
import { BackupSections } from './BackupSections';
import { RestoreStateCell } from './BackupState';

export function Screen() {
  const columns = useMemo(() => restoreColumns(), []);
  const facets = useMemo(() => restoreFacets(), []);
  return (
    <KindList
      kind={kinds.restores}
      area="/restores"
      title={t('backups.restores')}
      icon={IconHistory}
      columns={columns}
      facets={facets}
      emptyTitle={t('backups.noRestores')}
      emptyHelp={t('backups.noRestoresHelp')}
      deleteHelp={t('backups.deleteRestoreHelp')}
      defaultSort={{ column: 'age', descending: false }}
      below={<BackupSections current="/restores" />}
    />
  );
}

function restoreColumns(): Column<VirtualMachineRestore>[] {
  return [
    nameColumn('/restores'),
    { id: 'state', title: t('common.state'), value: (restore) => t(`backups.restore${restoreStateOf(restore).state}`), cell: (restore) => <RestoreStateCell restore={restore} />, width: 'minmax(140px, 1.4fr)', phone: true },
    { id: 'machine', title: t('backups.machine'), value: (restore) => restore.spec.target.name, cell: (restore) => <Link to={`/machines/${restore.metadata.namespace}/${restore.spec.target.name}`}>{restore.spec.target.name}</Link> },
    { id: 'backup', title: t('backups.from'), value: (restore) => restore.spec.virtualMachineBackupName, cell: (restore) => <Link to={`/backups/${restore.spec.virtualMachineBackupNamespace}/${restore.spec.virtualMachineBackupName}`}>{restore.spec.virtualMachineBackupName}</Link>, width: 'minmax(140px, 1.5fr)' },
    { id: 'way', title: t('backups.way'), value: wayOf, width: '130px' },
    namespaceColumn(),
    ageColumn(),
  ];
}

export function wayOf(restore: VirtualMachineRestore): string {
  return t(restore.spec.newVM ? 'backups.wayNew' : 'backups.wayReplace');
}

function restoreFacets(): Facet<VirtualMachineRestore>[] {
  return [
    { id: 'state', title: t('common.state'), values: (restore) => [restoreStateOf(restore).state], label: (state) => t(`backups.restore${state as RestoreState}`) },
    { id: 'machine', title: t('backups.machine'), values: (restore) => [restore.spec.target.name] },
  ];
}

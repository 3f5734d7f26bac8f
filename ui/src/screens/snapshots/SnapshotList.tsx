import { Button } from '@mantine/core';
import { IconCamera, IconPlus } from '@tabler/icons-react';
import { useMemo } from 'react';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column } from '@/parts/table/columns';
import { isSnapshot, memoryAnnotation } from '@/screens/backups/backup';
import { ChooseMachine } from '@/screens/backups/ChooseMachine';
import { keptColumns, keptFacets } from '@/screens/backups/keptColumns';
import { deleteHelp, KeptItems } from '@/screens/backups/KeptItems';
import { SnapshotSections } from './SnapshotSections';

export function Screen() {
  const columns = useMemo(() => snapshotColumns(), []);
  const facets = useMemo(() => keptFacets(), []);
  return (
    <KindList
      kind={kinds.backups}
      area="/snapshots"
      title={t('snapshots.title')}
      icon={IconCamera}
      columns={columns}
      facets={facets}
      filter={isSnapshot}
      emptyTitle={t('detail.noSnapshots')}
      emptyHelp={t('detail.noSnapshotsHelp')}
      create={<CreateButton />}
      menu={snapshotMenu}
      deleteHelp={deleteHelp('snapshot')}
      defaultSort={{ column: 'taken', descending: false }}
      below={<SnapshotSections current="/snapshots" />}
    />
  );
}

const snapshotMenu = (snapshot: VirtualMachineBackup) => <KeptItems backup={snapshot} />;

function snapshotColumns(): Column<VirtualMachineBackup>[] {
  const memory: Column<VirtualMachineBackup> = {
    id: 'memory',
    title: t('machines.snapshotMemory'),
    value: (snapshot) => (snapshot.metadata.annotations?.[memoryAnnotation] === 'true' ? t('common.yes') : ''),
    width: '110px',
    hidden: true,
  };
  return [...keptColumns('snapshot'), memory];
}

function CreateButton() {
  const may = useMayCreate(kinds.backups);
  return may ? <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <ChooseMachine type="snapshot" onClose={close} />)}>{t('machines.snapshot')}</Button> : null;
}

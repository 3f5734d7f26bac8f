import { Button } from '@mantine/core';
import { IconCamera, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { kinds } from '@/api/kinds';
import { formatBytes, parseQuantity } from '@/api/quantity';
import type { VolumeSnapshot } from '@/api/storage';
import { language, t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column, Facet } from '@/parts/table/columns';
import { Time } from '@/parts/Time';
import { SnapshotSections } from './SnapshotSections';
import type { SnapshotState } from './volumeSnapshot';
import { ownerOf, stateOf, takenAt, volumeOf } from './volumeSnapshot';
import { NewVolumeSnapshot } from './VolumeSnapshotDialogs';
import { VolumeSnapshotItems } from './VolumeSnapshotItems';
import { VolumeSnapshotState } from './VolumeSnapshotState';

export function Screen() {
  const columns = useMemo(() => snapshotColumns(), []);
  const facets = useMemo(() => snapshotFacets(), []);
  return (
    <KindList
      kind={kinds.volumeSnapshots}
      area="/volume-snapshots"
      title={t('snapshots.title')}
      icon={IconCamera}
      columns={columns}
      facets={facets}
      emptyTitle={t('snapshots.emptyVolumes')}
      emptyHelp={t('snapshots.emptyVolumesHelp')}
      create={<CreateButton />}
      menu={snapshotMenu}
      deleteHelp={t('detail.deleteSnapshotHelp')}
      defaultSort={{ column: 'taken', descending: false }}
      below={<SnapshotSections current="/volume-snapshots" />}
    />
  );
}

const snapshotMenu = (snapshot: VolumeSnapshot) => <VolumeSnapshotItems snapshot={snapshot} />;

function CreateButton() {
  const may = useMayCreate(kinds.volumeSnapshots);
  return may ? <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <NewVolumeSnapshot onClose={close} />)}>{t('machines.snapshot')}</Button> : null;
}

function snapshotColumns(): Column<VolumeSnapshot>[] {
  return [
    nameColumn('/volume-snapshots'),
    { id: 'state', title: t('common.state'), value: (snapshot) => t(`backups.${stateOf(snapshot).state}`), cell: (snapshot) => <VolumeSnapshotState snapshot={snapshot} />, width: '130px', phone: true },
    { id: 'volume', title: t('backups.volume'), value: volumeOf, cell: (snapshot) => (volumeOf(snapshot) ? <Link to={`/volumes/${snapshot.metadata.namespace}/${volumeOf(snapshot)}`}>{volumeOf(snapshot)}</Link> : '–'), width: 'minmax(130px, 1.4fr)' },
    namespaceColumn(),
    { id: 'size', title: t('common.size'), value: (snapshot) => parseQuantity(snapshot.status?.restoreSize), cell: (snapshot) => formatBytes(parseQuantity(snapshot.status?.restoreSize), language()), width: '100px', align: 'end', unsearched: true },
    { id: 'owner', title: t('backups.partOf'), value: ownerOf, cell: (snapshot) => <OwnerLink snapshot={snapshot} />, width: 'minmax(130px, 1.4fr)' },
    { id: 'class', title: t('snapshots.class'), value: (snapshot) => snapshot.spec.volumeSnapshotClassName, hidden: true },
    { id: 'taken', title: t('detail.taken'), value: (snapshot) => -Date.parse(takenAt(snapshot) ?? ''), cell: (snapshot) => <Time at={takenAt(snapshot)} />, width: '124px', unsearched: true },
  ];
}

export function OwnerLink({ snapshot }: { snapshot: VolumeSnapshot }) {
  const owner = ownerOf(snapshot);
  if (!owner) return <>–</>;
  const area = snapshot.spec.volumeSnapshotClassName === 'longhorn' ? '/backups' : '/snapshots';
  return <Link to={`${area}/${snapshot.metadata.namespace}/${owner}`}>{owner}</Link>;
}

function snapshotFacets(): Facet<VolumeSnapshot>[] {
  return [
    { id: 'state', title: t('common.state'), values: (snapshot) => [stateOf(snapshot).state], label: (state) => t(`backups.${state as SnapshotState}`) },
    { id: 'volume', title: t('backups.volume'), values: (snapshot) => [volumeOf(snapshot) ?? ''].filter(Boolean) },
  ];
}

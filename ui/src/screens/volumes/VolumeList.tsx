import { Button } from '@mantine/core';
import { IconDatabase, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useCollection } from '@/api/collections';
import type { PersistentVolumeClaim } from '@/api/core';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column } from '@/parts/table/columns';
import { NewVolumeDialog } from './dialogs';
import { imageOf, sizeOf, usersOf, volumeState } from './volume';
import { VolumeStateCell } from './VolumeState';
import { volumeMenu } from './volumeMenu';

export function Screen() {
  const mayCreate = useMayCreate(kinds.volumes);
  const machines = useCollection(kinds.machines).items;
  const users = useMemo(() => usersOf(machines), [machines]);
  const columns = useMemo(() => volumeColumns(users), [users]);
  const facets = useMemo(() => [{ id: 'class', title: t('volumes.class'), values: (volume: PersistentVolumeClaim) => [volume.spec?.storageClassName ?? ''] }], []);
  return (
    <KindList
      kind={kinds.volumes}
      area="/volumes"
      title={t('volumes.title')}
      icon={IconDatabase}
      columns={columns}
      facets={facets}
      emptyTitle={t('volumes.emptyTitle')}
      emptyHelp={t('volumes.emptyHelp')}
      create={mayCreate && <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <NewVolumeDialog onClose={close} />)}>{t('volumes.create')}</Button>}
      menu={volumeMenu}
      deleteHelp={t('volumes.deleteHelp')}
    />
  );
}

function volumeColumns(users: Map<string, string[]>): Column<PersistentVolumeClaim>[] {
  const of = (volume: PersistentVolumeClaim) => users.get(`${volume.metadata.namespace}/${volume.metadata.name}`) ?? [];
  return [
    nameColumn('/volumes'),
    { id: 'state', title: t('common.state'), value: (volume) => t(volumeState(volume).label), cell: (volume) => <VolumeStateCell volume={volume} />, width: 'minmax(110px, 1fr)', phone: true },
    namespaceColumn(),
    { id: 'size', title: t('common.size'), value: sizeOf, cell: (volume) => formatBytes(sizeOf(volume), language()), width: '110px', align: 'end', unsearched: true },
    {
      id: 'usedBy',
      title: t('volumes.usedBy'),
      value: (volume) => of(volume).join(' '),
      cell: (volume) => (of(volume).length > 0 ? of(volume).map((name) => <Link key={name} to={`/machines/${volume.metadata.namespace}/${name}`}>{name} </Link>) : '–'),
      width: 'minmax(130px, 1.2fr)',
    },
    { id: 'image', title: t('volumes.image'), value: imageOf, cell: (volume) => imageOf(volume) ?? '–', hidden: true },
    { id: 'class', title: t('volumes.class'), value: (volume) => volume.spec?.storageClassName, width: 'minmax(120px, 1.2fr)' },
    ageColumn(),
  ];
}

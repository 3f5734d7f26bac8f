import { Badge, Button, Group } from '@mantine/core';
import { IconPlus, IconStack2 } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { StorageClass } from '@/api/core';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { ageColumn, nameColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column, Facet } from '@/parts/table/columns';
import { ClassItems } from './ClassItems';
import { imageOf, isDefault } from './storageClass';

export function Screen() {
  const columns = useMemo(() => classColumns(), []);
  const facets = useMemo(() => classFacets(), []);
  return (
    <KindList
      kind={kinds.storageClasses}
      area="/storage-classes"
      title={t('storageClasses.title')}
      icon={IconStack2}
      columns={columns}
      facets={facets}
      create={<CreateButton />}
      menu={classMenu}
      deleteHelp={t('storageClasses.deleteHelp')}
    />
  );
}

const classMenu = (storageClass: StorageClass) => <ClassItems storageClass={storageClass} />;

function CreateButton() {
  const may = useMayCreate(kinds.storageClasses);
  return may ? <Button component={Link} to="/storage-classes/new" leftSection={<IconPlus size={17} />}>{t('storageClasses.create')}</Button> : null;
}

function NameCell({ storageClass }: { storageClass: StorageClass }) {
  return (
    <Group gap={8} wrap="nowrap">
      <Link to={objectAddress('/storage-classes', storageClass)} style={{ overflow: 'hidden', textOverflow: 'ellipsis' }}>{storageClass.metadata.name}</Link>
      {isDefault(storageClass) && <Badge size="xs" variant="light" style={{ flex: 'none' }}>{t('storageClasses.default')}</Badge>}
    </Group>
  );
}

function kindOf(storageClass: StorageClass): 'ofImage' | 'general' {
  return imageOf(storageClass) ? 'ofImage' : 'general';
}

function classColumns(): Column<StorageClass>[] {
  return [
    { ...nameColumn<StorageClass>('/storage-classes'), cell: (storageClass) => <NameCell storageClass={storageClass} /> },
    { id: 'image', title: t('storageClasses.image'), value: imageOf, cell: (storageClass) => (imageOf(storageClass) ? <Link to={`/images/${imageOf(storageClass)}`}>{imageOf(storageClass)}</Link> : '–') },
    { id: 'provisioner', title: t('storageClasses.provisioner'), value: (storageClass) => storageClass.provisioner, width: '150px' },
    { id: 'reclaim', title: t('storageClasses.reclaim'), value: (storageClass) => t(storageClass.reclaimPolicy === 'Retain' ? 'storageClasses.retain' : 'storageClasses.delete'), width: '150px', phone: true },
    { id: 'binding', title: t('storageClasses.binding'), value: (storageClass) => t(storageClass.volumeBindingMode === 'WaitForFirstConsumer' ? 'storageClasses.waiting' : 'storageClasses.immediate'), width: '150px' },
    { id: 'tags', title: t('storageClasses.tags'), value: (storageClass) => storageClass.parameters?.['diskSelector'], cell: (storageClass) => storageClass.parameters?.['diskSelector'] || '–', hidden: true },
    ageColumn(),
  ];
}

function classFacets(): Facet<StorageClass>[] {
  return [{ id: 'kind', title: t('common.type'), values: (storageClass) => [kindOf(storageClass)], label: (kind) => t(kind === 'ofImage' ? 'storageClasses.ofImage' : 'storageClasses.general') }];
}

import { Button } from '@mantine/core';
import { IconCloudCog, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { kinds } from '@/api/kinds';
import type { ConfigMap } from '@/api/storage';
import { t } from '@/i18n';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column, Facet } from '@/parts/table/columns';
import { kindLabel, textOf, typeOf } from './cloudConfig';

export function Screen() {
  const columns = useMemo(() => configColumns(), []);
  const facets = useMemo(() => configFacets(), []);
  return (
    <KindList
      kind={kinds.configMaps}
      labelSelector={kindLabel}
      area="/cloud-configs"
      title={t('cloudConfigs.title')}
      icon={IconCloudCog}
      columns={columns}
      facets={facets}
      emptyTitle={t('cloudConfigs.emptyTitle')}
      emptyHelp={t('cloudConfigs.emptyHelp')}
      create={<CreateButton />}
      deleteHelp={t('cloudConfigs.deleteHelp')}
    />
  );
}

function CreateButton() {
  const may = useMayCreate(kinds.configMaps);
  return may ? <Button component={Link} to="/cloud-configs/new" leftSection={<IconPlus size={17} />}>{t('cloudConfigs.create')}</Button> : null;
}

function configColumns(): Column<ConfigMap>[] {
  return [
    nameColumn('/cloud-configs'),
    { id: 'type', title: t('common.type'), value: (map) => t(`cloudConfigs.${typeOf(map)}`), width: '160px', phone: true },
    namespaceColumn(),
    { id: 'lines', title: t('cloudConfigs.lines'), value: (map) => textOf(map).split('\n').length, width: '90px', align: 'end', unsearched: true },
    ageColumn(),
  ];
}

function configFacets(): Facet<ConfigMap>[] {
  return [{ id: 'type', title: t('common.type'), values: (map) => [typeOf(map)], label: (value) => t(value === 'network' ? 'cloudConfigs.network' : 'cloudConfigs.user') }];
}

import { Text } from '@mantine/core';
import { IconCategory } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useDiscovery } from '@/api/discovery';
import type { DiscoveredKind } from '@/api/discovery';
import { asApiError } from '@/api/errors';
import { kindId } from '@/api/kinds';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { PageHead } from '@/parts/Page';
import { Failure } from '@/parts/States';
import type { Column, Facet } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { kindAddress } from './useKind';

/** Every kind that there is. */
export function Screen() {
  const { data, error, refetch } = useDiscovery();
  const columns = useMemo(() => kindColumns(), []);
  const facets = useMemo<Facet<DiscoveredKind>[]>(() => [{ id: 'group', title: t('explorer.group'), values: (kind) => [kind.group || 'core'] }], []);
  const rows = data ?? empty;
  if (error && !data) return <Failure error={asApiError(error)} retry={() => void refetch()} />;
  return (
    <>
      <PageHead title={t('explorer.title')} meta={<Text size="sm">{t('explorer.lead')}</Text>} />
      <DataTable id="explorer" snapshot={{ items: rows, phase: data ? 'ready' : 'loading', error: null }} rows={rows} columns={columns} facets={facets} keyOf={kindId} nameOf={(kind) => kind.kind} empty={<Blank icon={IconCategory} title={t('common.empty')} />} />
    </>
  );
}

const empty: readonly DiscoveredKind[] = [];

function kindColumns(): Column<DiscoveredKind>[] {
  return [
    { id: 'kind', title: t('common.kind'), value: (kind) => kind.kind, cell: (kind) => <Link to={kindAddress(kind)}>{kind.kind}</Link>, phone: true },
    { id: 'group', title: t('explorer.group'), value: (kind) => kind.group || 'core', phone: true },
    { id: 'version', title: t('explorer.version'), value: (kind) => kind.version, width: '110px' },
    { id: 'scope', title: t('explorer.scope'), value: (kind) => (kind.namespaced ? t('explorer.namespaced') : t('explorer.cluster')) },
    { id: 'short', title: t('explorer.shortNames'), value: (kind) => kind.shortNames.join(', '), cell: (kind) => kind.shortNames.join(', ') || '–' },
  ];
}

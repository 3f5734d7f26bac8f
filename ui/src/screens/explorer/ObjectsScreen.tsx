import { Button } from '@mantine/core';
import { IconCategory, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { asApiError } from '@/api/errors';
import type { Kind } from '@/api/kinds';
import { kindId } from '@/api/kinds';
import type { KubeObject } from '@/api/types';
import { isRecord } from '@/api/types';
import { NotFound } from '@/app/NotFound';
import { t } from '@/i18n';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { conditionsOf } from '@/parts/kind/KindDetail';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import { Failure, Loading } from '@/parts/States';
import type { Column } from '@/parts/table/columns';
import { kindAddress, useKind } from './useKind';

/** The objects of any kind. */
export function Screen() {
  const { kind, loading, error } = useKind();
  if (loading) return <Loading />;
  if (error) return <Failure error={asApiError(error)} />;
  if (!kind) return <NotFound />;
  return <Objects key={kindId(kind)} kind={kind} />;
}

function Objects({ kind }: { kind: Kind }) {
  const area = kindAddress(kind);
  const mayCreate = useMayCreate(kind);
  const columns = useMemo(() => objectColumns(kind, area), [kind, area]);
  return (
    <KindList
      kind={kind}
      area={area}
      title={kind.kind}
      icon={IconCategory}
      columns={columns}
      create={mayCreate && <Button component={Link} to={`${area}/new`} leftSection={<IconPlus size={17} />}>{t('explorer.create')}</Button>}
    />
  );
}

function objectColumns(kind: Kind, area: string): Column<KubeObject>[] {
  return [
    nameColumn(kind.namespaced ? area : `${area}/_`),
    ...(kind.namespaced ? [namespaceColumn<KubeObject>()] : []),
    { id: 'status', title: t('common.status'), value: statusOf, cell: (object) => statusOf(object) || '–' },
    ageColumn(),
  ];
}

/** The phase if there is one, else whether it is ready. */
export function statusOf(object: KubeObject): string {
  if (object.metadata.deletionTimestamp) return 'Terminating';
  const status: unknown = 'status' in object ? object.status : undefined;
  if (isRecord(status)) {
    for (const field of ['phase', 'state', 'printableStatus']) {
      const value = status[field];
      if (typeof value === 'string' && value !== '') return value;
    }
  }
  const ready = conditionsOf(object).find((condition) => condition.type === 'Ready' || condition.type === 'Available');
  if (!ready) return '';
  return ready.status === 'True' ? ready.type : (ready.reason ?? `Not${ready.type}`);
}

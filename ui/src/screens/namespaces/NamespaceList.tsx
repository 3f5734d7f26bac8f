import { Button, Menu } from '@mantine/core';
import { IconEdit, IconFolders, IconPlus } from '@tabler/icons-react';
import { useMemo } from 'react';
import { useCollection } from '@/api/collections';
import type { Namespace } from '@/api/core';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { isSystemNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { ageColumn, nameColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import { StatusBadge } from '@/parts/StatusBadge';
import type { Column, Facet } from '@/parts/table/columns';
import { descriptionOf, NamespaceDialog } from './NamespaceDialog';

export function Screen() {
  const machines = useCollection(kinds.machines).items;
  const quotas = useCollection(kinds.resourceQuotas).items;
  const columns = useMemo(() => {
    const machinesIn = counted(machines);
    const quotasIn = counted(quotas);
    return namespaceColumns(machinesIn, quotasIn);
  }, [machines, quotas]);
  const facets = useMemo(() => namespaceFacets(), []);
  return (
    <KindList
      kind={kinds.namespaces}
      area="/namespaces"
      title={t('namespaces.title')}
      icon={IconFolders}
      columns={columns}
      facets={facets}
      create={<CreateButton />}
      menu={namespaceMenu}
      deleteHelp={t('namespaces.deleteHelp')}
    />
  );
}

export const namespaceMenu = (namespace: Namespace) => <EditItem namespace={namespace} />;

function EditItem({ namespace }: { namespace: Namespace }) {
  const mayUpdate = useMay('update', kinds.namespaces);
  if (!mayUpdate) return null;
  return <Menu.Item leftSection={<IconEdit size={16} />} onClick={() => openDialog((close) => <NamespaceDialog namespace={namespace} onClose={close} />)}>{t('common.edit')}</Menu.Item>;
}

function CreateButton() {
  const mayCreate = useMayCreate(kinds.namespaces);
  if (!mayCreate) return null;
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <NamespaceDialog onClose={close} />)}>{t('namespaces.create')}</Button>;
}

type Count = (namespace: Namespace) => number;

function counted(items: readonly { metadata: { namespace?: string } }[]): Count {
  const counts = new Map<string, number>();
  for (const { metadata } of items) counts.set(metadata.namespace ?? '', (counts.get(metadata.namespace ?? '') ?? 0) + 1);
  return (namespace) => counts.get(namespace.metadata.name) ?? 0;
}

function namespaceColumns(machines: Count, quotas: Count): Column<Namespace>[] {
  return [
    nameColumn('/namespaces'),
    { id: 'state', title: t('common.state'), value: (namespace) => namespace.status?.phase, cell: (namespace) => <NamespaceState namespace={namespace} />, width: '150px', phone: true },
    { id: 'description', title: t('common.description'), value: descriptionOf, cell: (namespace) => descriptionOf(namespace) || '–', width: 'minmax(140px, 2fr)' },
    { id: 'machines', title: t('machines.title'), value: machines, width: '150px', align: 'end', unsearched: true },
    { id: 'quotas', title: t('namespaces.quotas'), value: quotas, width: '110px', align: 'end', unsearched: true },
    ageColumn(),
  ];
}

function namespaceFacets(): Facet<Namespace>[] {
  return [{ id: 'kind', title: t('namespaces.kind'), values: (namespace) => [isSystemNamespace(namespace.metadata.name) ? 'system' : 'own'], label: (value) => t(value === 'system' ? 'namespaces.system' : 'namespaces.own') }];
}

export function NamespaceState({ namespace }: { namespace: Namespace }) {
  const leaving = namespace.status?.phase === 'Terminating' || namespace.metadata.deletionTimestamp !== undefined;
  return <StatusBadge tone={leaving ? 'busy' : 'ok'} label={t(leaving ? 'namespaces.terminating' : 'namespaces.active')} />;
}

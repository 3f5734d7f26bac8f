import { IconServer } from '@tabler/icons-react';
import { useMemo } from 'react';
import { keyOf } from '@/api/collection';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { formatBytes } from '@/api/quantity';
import { useUsageNow } from '@/api/usage';
import { objectAddress } from '@/app/address';
import { language, t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ObjectMenu } from '@/parts/kind/ObjectMenu';
import { PageHead } from '@/parts/Page';
import type { Column, Facet } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { Time } from '@/parts/Time';
import { Link } from '@tanstack/react-router';
import type { HostRow } from './host';
import { addressOf, capacityOf, machinesOn, roleText, stateOf } from './host';
import { HostItems } from './HostActions';
import { HostState } from './HostState';
import { UsageBar } from './UsageBar';

export function Screen() {
  const snapshot = useCollection(kinds.nodes);
  const instances = useCollection(kinds.instances).items;
  const { data } = useUsageNow('nodes');
  const rows = useMemo(
    () =>
      snapshot.items.map((node): HostRow => ({
        node,
        machines: machinesOn(instances, node.metadata.name).length,
        usage: data?.items.find((item) => item.node === node.metadata.name)?.usage,
      })),
    [snapshot.items, instances, data],
  );
  const columns = useMemo(() => hostColumns(), []);
  const facets = useMemo(() => hostFacets(), []);
  return (
    <>
      <PageHead title={t('hosts.title')} />
      <DataTable
        id="hosts"
        snapshot={snapshot}
        rows={rows}
        columns={columns}
        facets={facets}
        keyOf={rowKey}
        nameOf={rowName}
        defaultSort={{ column: 'name', descending: false }}
        empty={<Blank icon={IconServer} title={t('hosts.emptyTitle')} text={t('hosts.emptyHelp')} />}
        menu={rowMenu}
      />
    </>
  );
}

const rowKey = (row: HostRow) => keyOf(row.node);
const rowName = (row: HostRow) => row.node.metadata.name;
const rowMenu = ({ node }: HostRow) => (
  <ObjectMenu kind={kinds.nodes} object={node} address={objectAddress('/hosts', node)} deleteHelp={t('hosts.deleteHelp')}>{() => <HostItems node={node} />}</ObjectMenu>
);

const bytes = (value: number) => formatBytes(value, language());
const cores = (value: number) => new Intl.NumberFormat(language(), { maximumFractionDigits: 1 }).format(value);

function hostColumns(): Column<HostRow>[] {
  return [
    { id: 'name', title: t('common.name'), value: rowName, cell: ({ node }) => <Link to={objectAddress('/hosts', node)}>{node.metadata.name}</Link>, width: 'minmax(150px, 1.4fr)', phone: true },
    { id: 'state', title: t('common.state'), value: ({ node }) => t(`hosts.${stateOf(node)}`), cell: ({ node }) => <HostState node={node} />, width: 'minmax(150px, 1fr)', phone: true },
    { id: 'address', title: t('hosts.address'), value: ({ node }) => addressOf(node), width: 'minmax(120px, 1fr)' },
    { id: 'cpu', title: t('hosts.cpus'), value: (row) => row.usage?.['cpuCores'], cell: (row) => <UsageBar label={t('hosts.cpus')} used={row.usage?.['cpuCores']} total={capacityOf(row.node, 'cpu')} format={cores} />, width: 'minmax(120px, 1fr)', unsearched: true },
    { id: 'memory', title: t('hosts.memory'), value: (row) => row.usage?.['memoryBytes'], cell: (row) => <UsageBar label={t('hosts.memory')} used={row.usage?.['memoryBytes']} total={capacityOf(row.node, 'memory')} format={bytes} />, width: 'minmax(150px, 1fr)', unsearched: true },
    { id: 'machines', title: t('hosts.machineCount'), value: (row) => row.machines, width: '100px', align: 'end', unsearched: true },
    { id: 'role', title: t('hosts.role'), value: ({ node }) => roleText(node), hidden: true },
    { id: 'system', title: t('hosts.system'), value: ({ node }) => node.status?.nodeInfo?.['osImage'], hidden: true },
    { id: 'age', title: t('common.age'), value: ({ node }) => -Date.parse(node.metadata.creationTimestamp ?? ''), cell: ({ node }) => <Time at={node.metadata.creationTimestamp} />, width: '124px', unsearched: true },
  ];
}

function hostFacets(): Facet<HostRow>[] {
  return [{ id: 'state', title: t('common.state'), values: ({ node }) => [stateOf(node)], label: (state) => t(`hosts.${state as ReturnType<typeof stateOf>}`) }];
}

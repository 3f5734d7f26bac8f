import { ActionIcon, Button, Group, Menu } from '@mantine/core';
import { IconChevronDown, IconCode, IconDeviceDesktop, IconPlus, IconTemplate, IconTerminal2 } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { keyOf } from '@/api/collection';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { formatBytes } from '@/api/quantity';
import { objectAddress } from '@/app/address';
import { useDefaultNamespace } from '@/app/namespace';
import { language, t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { PageHead } from '@/parts/Page';
import { QueryLink } from '@/parts/QueryLink';
import { RowLink } from '@/parts/RowLink';
import type { Column, Facet } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { Time } from '@/parts/Time';
import { isRunning } from './availability';
import { BulkActions } from './BulkActions';
import type { MachineRow } from './machine';
import { addressesOf, cpusOf, guestOf, memoryOf, nodeOf, ownLabels, stateOf } from './machine';
import classes from './MachineList.module.css';
import { MachineMenu } from './MachineMenu';
import { MachineState, stateLabel } from './State';
import { useMachineRows } from './useMachineRows';

export function Screen() {
  return (
    <>
      <PageHead title={t('machines.title')} actions={<CreateButton />} />
      <MachineTable />
    </>
  );
}

/** Apart from the rest, which does not change when machines do. */
function MachineTable() {
  const { snapshot, rows } = useMachineRows();
  const columns = useMemo(() => machineColumns(), []);
  const facets = useMemo(() => machineFacets(), []);
  return (
    <DataTable
      id="machines"
      snapshot={snapshot}
      rows={rows}
      columns={columns}
      facets={facets}
      keyOf={rowKey}
      nameOf={rowName}
      defaultSort={byName}
      empty={<Blank icon={IconDeviceDesktop} title={t('machines.emptyTitle')} text={t('machines.emptyHelp')}><CreateButton /></Blank>}
      bulk={bulkActions}
      menu={rowMenu}
    />
  );
}

const byName = { column: 'name', descending: false };
const rowKey = (row: MachineRow) => keyOf(row.machine);
const rowName = (row: MachineRow) => row.machine.metadata.name;
const bulkActions = (selected: readonly MachineRow[], clear: () => void) => <BulkActions rows={selected} onDone={clear} />;
const rowMenu = (row: MachineRow) => <MachineMenu row={row} />;

function CreateButton() {
  const can = useCan(useDefaultNamespace());
  if (!can('create', kinds.machines)) return null;
  return (
    <Group gap={0} wrap="nowrap">
      <Button component={Link} to="/machines/new" leftSection={<IconPlus size={17} />} style={{ borderTopRightRadius: 0, borderBottomRightRadius: 0 }}>{t('machines.create')}</Button>
      <Menu>
        <Menu.Target>
          <ActionIcon size={36} aria-label={t('common.more')} style={{ borderTopLeftRadius: 0, borderBottomLeftRadius: 0, marginLeft: 1 }}><IconChevronDown size={17} /></ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item component={QueryLink} to="/machines/new" query={{ from: 'template' }} leftSection={<IconTemplate size={16} />}>{t('machines.fromTemplate')}</Menu.Item>
          <Menu.Item component={QueryLink} to="/machines/new" query={{ from: 'yaml' }} leftSection={<IconCode size={16} />}>{t('machines.fromYaml')}</Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </Group>
  );
}

function NameCell({ row }: { row: MachineRow }) {
  const { machine } = row;
  const address = objectAddress('/machines', machine);
  return (
    <span className={classes.name}>
      <RowLink to={address}>{machine.metadata.name}</RowLink>
      {isRunning(row) && <RowLink to={`${address}/console`} className={classes.console} label={t('machines.openConsole', { name: machine.metadata.name })}><IconTerminal2 size={16} /></RowLink>}
    </span>
  );
}

/** The first one, and how many there are besides: all of them would not fit. */
function Addresses({ of: [first, ...others] }: { of: readonly string[] }) {
  if (!first) return '–';
  return others.length === 0 ? first : <span title={[first, ...others].join(', ')}>{first} <small>+{others.length}</small></span>;
}

function machineColumns(): Column<MachineRow>[] {
  return [
    { id: 'name', title: t('common.name'), value: (row) => row.machine.metadata.name, cell: (row) => <NameCell row={row} />, width: 'minmax(150px, 2fr)', phone: true },
    { id: 'state', title: t('common.state'), value: (row) => stateLabel(stateOf(row.machine)), cell: (row) => <MachineState row={row} />, width: 'minmax(120px, 1.2fr)', phone: true },
    { id: 'namespace', title: t('common.namespace'), value: (row) => row.machine.metadata.namespace, width: 'minmax(90px, 1fr)' },
    { id: 'cpus', title: t('machines.cpus'), value: (row) => cpusOf(row.machine), width: '72px', align: 'end', unsearched: true },
    { id: 'memory', title: t('machines.memory'), value: (row) => memoryOf(row.machine), cell: (row) => formatBytes(memoryOf(row.machine), language()), width: '96px', align: 'end', unsearched: true },
    { id: 'addresses', title: t('machines.addresses'), value: (row) => addressesOf(row.instance).join(' '), cell: (row) => <Addresses of={addressesOf(row.instance)} />, width: 'minmax(124px, 1.2fr)' },
    { id: 'host', title: t('machines.host'), value: nodeOf, cell: (row) => nodeOf(row) || '–', width: 'minmax(80px, 1fr)' },
    { id: 'guest', title: t('machines.guest'), value: (row) => guestOf(row.instance), cell: (row) => guestOf(row.instance) || '–', hidden: true },
    { id: 'strategy', title: t('machines.runStrategy'), value: (row) => row.machine.spec.runStrategy, hidden: true },
    { id: 'labels', title: t('common.labels'), value: (row) => labelTexts(row).join(' '), cell: (row) => labelTexts(row).join(', ') || '–', hidden: true },
    { id: 'age', title: t('common.age'), value: (row) => Date.parse(row.machine.metadata.creationTimestamp ?? '') * -1, cell: (row) => <Time at={row.machine.metadata.creationTimestamp} />, width: '116px', unsearched: true },
  ];
}

function machineFacets(): Facet<MachineRow>[] {
  return [
    { id: 'state', title: t('common.state'), values: (row) => [stateOf(row.machine)], label: stateLabel },
    { id: 'host', title: t('machines.host'), values: (row) => (nodeOf(row) ? [nodeOf(row)] : []) },
    { id: 'label', title: t('machines.label'), values: labelTexts },
  ];
}

function labelTexts(row: MachineRow): string[] {
  return ownLabels(row.machine.metadata.labels).map(([key, value]) => `${key}=${value}`);
}

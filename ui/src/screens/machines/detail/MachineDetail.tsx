import { Alert, Button, Group, Tabs } from '@mantine/core';
import { IconPlayerPlay, IconTerminal2 } from '@tabler/icons-react';
import { Link, useNavigate } from '@tanstack/react-router';
import { lazy, Suspense, type ComponentType } from 'react';
import { useObject } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { useAddress } from '@/app/address';
import { t } from '@/i18n';
import { EventsOf } from '@/parts/EventList';
import { PageHead } from '@/parts/Page';
import { Loading, ObjectStates } from '@/parts/States';
import { YamlTab } from '@/parts/yaml/YamlTab';
import { isRunning, powerActions } from '../availability';
import type { MachineRow } from '../machine';
import { addressesOf, nodeOf, stateOf, toneOf, troubleOf } from '../machine';
import { MachineMenu } from '../MachineMenu';
import { runPower } from '../powerButtons';
import { MachineState } from '../State';
import { Overview } from './Overview';

export interface TabProps {
  row: MachineRow;
}

function later(load: () => Promise<{ Tab: ComponentType<TabProps> }>) {
  return lazy(() => load().then((module) => ({ default: module.Tab })));
}

const tabs = {
  overview: Overview,
  console: later(() => import('./ConsoleTab')),
  disks: later(() => import('./DisksTab')),
  networks: later(() => import('./NetworksTab')),
  cloudInit: later(() => import('./CloudInitTab')),
  snapshots: later(() => import('./SnapshotsTab')),
  backups: later(() => import('./BackupsTab')),
  schedules: later(() => import('./SchedulesTab')),
  events: ({ row }: TabProps) => <EventsOf namespace={row.machine.metadata.namespace ?? ''} name={row.machine.metadata.name} />,
  yaml: ({ row }: TabProps) => <YamlTab kind={kinds.machines} object={row.machine} />,
} as const;
type TabId = keyof typeof tabs;

export function Screen() {
  const { namespace = '', name = '', tab = 'overview' } = useAddress();
  const machine = useObject(kinds.machines, namespace, name);
  const instance = useObject(kinds.instances, namespace, name);
  return (
    <ObjectStates snapshot={machine.snapshot} name={name}>
      {(object) => <Detail row={{ machine: object, instance: instance.object }} tab={tab in tabs ? (tab as TabId) : 'overview'} />}
    </ObjectStates>
  );
}

function Detail({ row, tab }: { row: MachineRow; tab: TabId }) {
  const { machine, instance } = row;
  const { namespace = '', name } = machine.metadata;
  const navigate = useNavigate();
  const can = useCan(namespace);
  const base = `/machines/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const Content = tabs[tab];
  const actions = powerActions(row);
  const trouble = toneOf(stateOf(machine)) === 'bad' ? troubleOf(row) : undefined;
  return (
    <>
      <PageHead
        title={name}
        parent={{ title: t('machines.title'), to: '/machines' }}
        meta={<><MachineState row={row} /><span>{namespace}</span>{nodeOf(row) && <span>{nodeOf(row)}</span>}{addressesOf(instance)[0] && <span>{addressesOf(instance)[0]}</span>}</>}
        actions={
          <Group gap="xs">
            {can('update', kinds.machines, name) && actions.includes('start') && <Button leftSection={<IconPlayerPlay size={17} />} onClick={() => runPower(machine, 'start')}>{t('machines.start')}</Button>}
            {isRunning(row) && tab !== 'console' && <Button variant="light" component={Link} to={`${base}/console`} leftSection={<IconTerminal2 size={17} />}>{t('machines.console')}</Button>}
            <MachineMenu row={row} large />
          </Group>
        }
      />
      {trouble && <Alert color="red" title={t('detail.trouble')} mb="md">{trouble}</Alert>}
      <Tabs value={tab} onChange={(value) => void navigate({ to: value === 'overview' ? base : `${base}/${value}` })} mb="md">
        <Tabs.List style={{ flexWrap: 'nowrap', overflowX: 'auto', overflowY: 'hidden' }}>
          {(Object.keys(tabs) as TabId[]).map((id) => <Tabs.Tab key={id} value={id} style={{ flex: 'none' }}>{t(`detail.${id}`)}</Tabs.Tab>)}
        </Tabs.List>
      </Tabs>
      <Suspense fallback={<Loading />}><Content row={row} /></Suspense>
    </>
  );
}

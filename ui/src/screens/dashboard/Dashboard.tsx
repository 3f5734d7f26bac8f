import { Button, Progress, Stack, Text } from '@mantine/core';
import { IconAlertTriangle, IconCircleCheck, IconExclamationCircle } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useEffect, useMemo, type ReactNode } from 'react';
import { useCollection, useObject } from '@/api/collections';
import { kinds } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import { formatBytes, parseQuantity } from '@/api/quantity';
import { useUsageNow } from '@/api/usage';
import { useInNamespace } from '@/app/namespace';
import { language, t } from '@/i18n';
import { expectCharts } from '@/parts/charts/LazyChart';
import { UsageCharts } from '@/parts/charts/UsageCharts';
import { EventTable } from '@/parts/EventList';
import { Card, PageHead } from '@/parts/Page';
import { StatusBadge } from '@/parts/StatusBadge';
import { stateOf, toneOf } from '../machines/machine';
import { stateLabel } from '../machines/State';
import type { Concern } from './attention';
import { concerns } from './attention';
import classes from './Dashboard.module.css';
import { operations } from './operations';

/** How things are, at a glance. */
export function Screen() {
  useEffect(expectCharts, []);
  const machinesSnapshot = useCollection(kinds.machines);
  const machines = useInNamespace(machinesSnapshot.items);
  const nodes = useCollection(kinds.nodes).items;
  const images = useCollection(kinds.images).items;
  const backups = useCollection(kinds.backups).items;
  const restores = useCollection(kinds.restores).items;
  const schedules = useCollection(kinds.schedules).items;
  const events = useCollection(kinds.events);
  const backupTarget = useObject(kinds.settings, undefined, 'backup-target').object;
  const usageItems = useUsageNow('nodes').data?.items;

  const found = useMemo(() => concerns({ nodes, machines, images, backups, schedules, backupTarget, usage: usageItems ?? [] }), [nodes, machines, images, backups, schedules, backupTarget, usageItems]);
  const running = useMemo(() => operations(machines, images, backups, restores), [machines, images, backups, restores]);
  const sum = (of: 'usage' | 'capacity', name: string) => usageItems?.reduce((total, item) => total + (item[of][name] ?? 0), 0);
  const capacityOf = (name: string) => nodes.reduce((total, node) => total + (parseQuantity(node.status?.capacity?.[name]) ?? 0), 0);
  const up = machines.filter((machine) => stateOf(machine) === 'Running').length;
  const ready = nodes.filter((node) => node.status?.conditions?.some((each) => each.type === 'Ready' && each.status === 'True')).length;
  const bytes = (value: number | undefined) => formatBytes(value, language());
  const cores = new Intl.NumberFormat(language(), { maximumFractionDigits: 1 });
  const cpuTotal = sum('capacity', 'cpuCores') || capacityOf('cpu');
  const memoryTotal = sum('capacity', 'memoryBytes') || capacityOf('memory');

  return (
    <Stack gap={14}>
      <PageHead title={t('dashboard.title')} />
      <div className={classes.tiles}>
        <Tile title={t('dashboard.machines')} to="/machines" value={up} detail={t('dashboard.machinesOf', { running: up, total: machines.length })} part={up} whole={machines.length} />
        <Tile title={t('dashboard.hosts')} to="/hosts" value={`${ready} / ${nodes.length}`} detail={t('dashboard.hostsReady', { ready, total: nodes.length })} part={ready} whole={nodes.length} />
        <Tile title={t('dashboard.cpu')} value={percent(sum('usage', 'cpuCores'), cpuTotal)} detail={t('dashboard.cpuOf', { used: cores.format(sum('usage', 'cpuCores') ?? 0), total: cores.format(cpuTotal) })} part={sum('usage', 'cpuCores')} whole={cpuTotal} />
        <Tile title={t('dashboard.memory')} value={percent(sum('usage', 'memoryBytes'), memoryTotal)} detail={t('dashboard.ofTotal', { used: bytes(sum('usage', 'memoryBytes')), total: bytes(memoryTotal) })} part={sum('usage', 'memoryBytes')} whole={memoryTotal} />
        <Tile title={t('dashboard.storage')} to="/volumes" value={percent(sum('usage', 'storageBytes'), sum('capacity', 'storageBytes'))} detail={t('dashboard.ofTotal', { used: bytes(sum('usage', 'storageBytes')), total: bytes(sum('capacity', 'storageBytes')) })} part={sum('usage', 'storageBytes')} whole={sum('capacity', 'storageBytes')} />
      </div>
      <div className={classes.columns}>
        <Card title={found.length === 0 ? t('dashboard.healthy') : t('dashboard.attention', { count: found.length })}>
          <Concerns found={found} />
        </Card>
        <Stack gap={14}>
          <Card title={t('dashboard.byState')}>
            {machines.length > 0 ? <ByState machines={machines} /> : <FirstSteps haveImage={images.length > 0} />}
          </Card>
          <Card title={t('dashboard.operations')}>
            {running.length === 0 && <Text size="sm" c="dimmed">{t('dashboard.noOperations')}</Text>}
            <Stack gap="xs">
              {running.map((operation) => (
                <div key={operation.id}>
                  <Text size="sm"><Link to={operation.to}>{operation.title}</Link> <Text span c="dimmed" size="sm">{operation.detail}{operation.progress !== undefined && ` ${operation.progress} %`}</Text></Text>
                  <Progress size="sm" animated value={operation.progress ?? 100} aria-label={operation.title} />
                </div>
              ))}
            </Stack>
          </Card>
        </Stack>
      </div>
      {nodes.slice(0, 4).map((node) => <UsageCharts key={node.metadata.name} target={`nodes/${node.metadata.name}`} title={t('dashboard.hostUsage', { name: node.metadata.name })} />)}
      <Card title={t('dashboard.events')}><EventTable snapshot={events} withObject limit={12} /></Card>
    </Stack>
  );
}

function percent(part: number | undefined, whole: number | undefined): string {
  if (part === undefined || !whole) return '–';
  return new Intl.NumberFormat(language(), { style: 'percent' }).format(part / whole);
}

interface TileProps {
  title: string;
  value: ReactNode;
  detail: string;
  part: number | undefined;
  whole: number | undefined;
  to?: string;
}

function Tile({ title, value, detail, part, whole, to }: TileProps) {
  const share = part === undefined || !whole ? 0 : (100 * part) / whole;
  const content = (
    <>
      <div className={classes.tileTitle}>{title}</div>
      <div className={classes.tileValue}>{value}</div>
      <Progress size="sm" value={share} aria-label={title} />
      <div className={classes.tileDetail}>{detail}</div>
    </>
  );
  return to ? <Link to={to} className={classes.tile}>{content}</Link> : <div className={classes.tile}>{content}</div>;
}

const shown = 8;

function Concerns({ found }: { found: readonly Concern[] }) {
  if (found.length === 0) {
    return <div className={classes.concern} data-severity="ok"><IconCircleCheck size={20} aria-hidden /><Text size="sm">{t('dashboard.attentionNone')}</Text></div>;
  }
  return (
    <>
      {found.slice(0, shown).map((concern) => (
        <Link key={concern.id} to={concern.to} className={classes.concern} data-severity={concern.severity}>
          {concern.severity === 'bad' ? <IconExclamationCircle size={20} aria-hidden /> : <IconAlertTriangle size={20} aria-hidden />}
          <div>
            <Text size="sm" fw={560}>{concern.title}</Text>
            <Text size="sm" c="dimmed" lineClamp={2}>{concern.help}</Text>
          </div>
        </Link>
      ))}
    </>
  );
}

function ByState({ machines }: { machines: readonly VirtualMachine[] }) {
  const counts = new Map<string, number>();
  for (const machine of machines) counts.set(stateOf(machine), (counts.get(stateOf(machine)) ?? 0) + 1);
  const states = [...counts].sort(([, a], [, b]) => b - a);
  return (
    <>
      <div className={classes.stack} aria-hidden>
        {states.map(([state, count]) => <span key={state} data-tone={toneOf(state)} style={{ flex: count }} />)}
      </div>
      <div className={classes.states}>
        {states.map(([state, count]) => (
          <Link key={state} to="/machines" search={{ state }}><StatusBadge tone={toneOf(state)} label={`${count} ${stateLabel(state)}`} /></Link>
        ))}
      </div>
    </>
  );
}

function FirstSteps({ haveImage }: { haveImage: boolean }) {
  return (
    <Stack align="flex-start">
      <Text size="sm" c="dimmed">{t('dashboard.noMachines')} {!haveImage && t('dashboard.firstImage')}</Text>
      {haveImage ? <Button component={Link} to="/machines/new">{t('dashboard.firstMachine')}</Button> : <Button component={Link} to="/images/new">{t('images.add')}</Button>}
    </Stack>
  );
}

import { Badge, Button, Group, SimpleGrid, Stack, Text } from '@mantine/core';
import type { Node } from '@/api/core';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { UsageCharts } from '@/parts/charts/UsageCharts';
import { openDialog } from '@/parts/dialogs';
import type { Fact } from '@/parts/Facts';
import type { ExtraTab } from '@/parts/kind/KindDetail';
import { KindDetail } from '@/parts/kind/KindDetail';
import { EventsOf } from '@/parts/EventList';
import { Notice } from '@/parts/Notice';
import { Card } from '@/parts/Page';
import { DisksTab } from './DisksTab';
import { addressOf, capacityOf, clockOf, roleText, stateOf, troublesOf } from './host';
import { endMaintenance, HostItems } from './HostActions';
import { HostState } from './HostState';
import { LinksTab } from './LinksTab';
import { MachinesTab } from './MachinesTab';
import { TaintsDialog } from './TaintsDialog';

export function Screen() {
  const tabs: ExtraTab<Node>[] = [
    { id: 'machines', label: t('machines.title'), content: machinesTab },
    { id: 'disks', label: t('hosts.disks'), content: disksTab },
    { id: 'links', label: t('hosts.links'), content: linksTab },
    { id: 'events', label: t('common.events'), content: eventsTab },
  ];
  return (
    <KindDetail kind={kinds.nodes} area="/hosts" parent={t('hosts.title')} meta={meta} facts={factsOf} body={body} tabs={tabs} actions={actions} menu={menu} deleteHelp={t('hosts.deleteHelp')} />
  );
}

const machinesTab = (node: Node) => <MachinesTab node={node.metadata.name} />;
const disksTab = (node: Node) => <DisksTab node={node.metadata.name} />;
const linksTab = (node: Node) => <LinksTab node={node.metadata.name} />;
// Events about objects without a namespace are kept in this one.
const eventsTab = (node: Node) => <EventsOf namespace="default" name={node.metadata.name} />;
const meta = (node: Node) => <><HostState node={node} /><span>{addressOf(node)}</span></>;
const body = (node: Node) => <Body node={node} />;
const actions = (node: Node) => <MaintenanceButton node={node} />;
const menu = (node: Node) => <HostItems node={node} />;

function factsOf(node: Node): Fact[] {
  const info = node.status?.nodeInfo ?? {};
  const clock = clockOf(node);
  const huge = capacityOf(node, 'hugepages-2Mi') ?? 0;
  return [
    [t('hosts.role'), roleText(node)],
    [t('hosts.address'), node.status?.addresses?.map((address) => address.address).join(', ')],
    [t('hosts.cpus'), node.status?.capacity?.['cpu']],
    [t('hosts.memory'), formatBytes(capacityOf(node, 'memory'), language())],
    [t('hosts.hugePages'), huge > 0 && formatBytes(huge, language())],
    [t('hosts.acceleration'), (capacityOf(node, 'devices.kubevirt.io/kvm') ?? 0) > 0 ? t('hosts.kvm') : t('hosts.emulation')],
    [t('hosts.system'), info['osImage']],
    [t('hosts.kernel'), info['kernelVersion']],
    [t('hosts.architecture'), info['architecture']],
    [t('hosts.version'), info['kubeletVersion']],
    [t('hosts.machineId'), info['machineID']],
    [t('hosts.clock'), clock && [clock.status, clock.servers, clock.message].filter(Boolean).join(' – ')],
  ];
}

function MaintenanceButton({ node }: { node: Node }) {
  const mayUpdate = useMay('update', kinds.nodes);
  const state = stateOf(node);
  if (!mayUpdate || (state !== 'maintenance' && state !== 'enteringMaintenance')) return null;
  return <Button onClick={() => endMaintenance(node)}>{t('hosts.endMaintenance')}</Button>;
}

function Body({ node }: { node: Node }) {
  const troubles = troublesOf(node);
  return (
    <Stack>
      {troubles.length > 0 && (
        <Notice title={t('hosts.troubles')}>
          {troubles.map(({ type, message }) => <Text key={type} size="sm"><b>{type}</b>: {message}</Text>)}
        </Notice>
      )}
      <UsageCharts target={`nodes/${node.metadata.name}`} />
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <TaintsCard node={node} />
        <CapacityCard node={node} />
      </SimpleGrid>
    </Stack>
  );
}

function TaintsCard({ node }: { node: Node }) {
  const mayUpdate = useMay('update', kinds.nodes);
  const taints = node.spec?.taints ?? [];
  const edit = () => openDialog((close) => <TaintsDialog node={node} onClose={close} />);
  return (
    <Card title={t('hosts.taints')} actions={mayUpdate && <Button size="compact-xs" variant="subtle" onClick={edit}>{t('common.edit')}</Button>}>
      <Group gap={6}>
        {taints.length === 0 && <Text size="sm" c="dimmed">{t('hosts.noTaints')}</Text>}
        {taints.map(({ key, value, effect }) => <Badge key={`${key}${effect}`} variant="default" tt="none" fw={450}>{key}{value && `=${value}`}:{effect}</Badge>)}
      </Group>
    </Card>
  );
}

/** What machines can be given, beside what there is. */
function CapacityCard({ node }: { node: Node }) {
  const { capacity = {}, allocatable = {} } = node.status ?? {};
  const shown = ['cpu', 'memory', 'ephemeral-storage', 'devices.kubevirt.io/kvm', 'devices.kubevirt.io/tun', 'devices.kubevirt.io/vhost-net'].filter((name) => name in capacity);
  const text = (name: string, from: Record<string, string>) => (name === 'memory' || name === 'ephemeral-storage' ? formatBytes(capacityFrom(from, name), language()) : from[name]);
  return (
    <Card title={t('hosts.forMachines')}>
      <Stack gap={4}>
        {shown.map((name) => (
          <Group key={name} justify="space-between" gap="md" wrap="nowrap">
            <Text size="sm" c="dimmed">{name}</Text>
            <Text size="sm">{t('hosts.ofTotal', { free: text(name, allocatable) ?? '–', total: text(name, capacity) ?? '–' })}</Text>
          </Group>
        ))}
      </Stack>
    </Card>
  );
}

function capacityFrom(from: Record<string, string>, name: string): number | undefined {
  return capacityOf({ metadata: { name: '' }, status: { capacity: from } }, name);
}

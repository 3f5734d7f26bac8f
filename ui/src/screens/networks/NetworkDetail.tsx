import { Code, Table, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { NetworkAttachmentDefinition } from '@/api/cluster';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import type { Fact } from '@/parts/Facts';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { joinRows } from '../machines/machine';
import { MachineState } from '../machines/State';
import { configOf, descriptionOf, factsOf, routeOf } from './network';
import { NetworkItems } from './NetworkItems';
import { NetworkState, vlanText } from './NetworkState';

export function Screen() {
  return <KindDetail kind={kinds.networks} area="/networks" parent={t('networks.title')} meta={meta} facts={facts} body={body} menu={menu} deleteHelp={t('networks.deleteHelp')} />;
}

const meta = (network: NetworkAttachmentDefinition) => <NetworkState network={network} />;
const menu = (network: NetworkAttachmentDefinition) => <NetworkItems network={network} />;
const body = (network: NetworkAttachmentDefinition) => <Body network={network} />;

function facts(network: NetworkAttachmentDefinition): Fact[] {
  const { plugin, bridge, clusterNetwork, mtu, spoofCheck } = factsOf(network);
  const route = routeOf(network);
  return [
    [t('common.description'), descriptionOf(network)],
    [t('networks.plugin'), plugin],
    [t('networks.vlan'), vlanText(network)],
    [t('networks.clusterNetwork'), clusterNetwork && <Link key="link" to={`/cluster-networks/${clusterNetwork}`}>{clusterNetwork}</Link>],
    [t('networks.bridge'), bridge],
    [t('networks.mtu'), mtu],
    [t('networks.foreignMac'), spoofCheck && t('networks.foreignMacRefused')],
    [t('networks.route'), route && (route.mode === 'auto' ? [t('networks.routeAuto'), route.serverIPAddr].filter(Boolean).join(', ') : `${route.cidr}, ${route.gateway}`)],
  ];
}

function Body({ network }: { network: NetworkAttachmentDefinition }) {
  return (
    <>
      <MachinesOf network={network} />
      <Card title={t('networks.config')}><Code block>{JSON.stringify(configOf(network), null, 2)}</Code></Card>
    </>
  );
}

/** The machines with an interface here: they stand in the way of changes. */
function MachinesOf({ network }: { network: NetworkAttachmentDefinition }) {
  const { namespace, name } = network.metadata;
  const machines = useCollection(kinds.machines).items;
  const instances = useCollection(kinds.instances).items;
  const rows = useMemo(() => {
    const names = new Set([`${namespace}/${name}`]);
    return joinRows(machines, instances).filter(({ machine }) =>
      machine.spec.template.spec.networks?.some(({ multus }) => multus && (names.has(multus.networkName) || (machine.metadata.namespace === namespace && multus.networkName === name))),
    );
  }, [machines, instances, namespace, name]);
  return (
    <Card title={t('networks.machines')}>
      {rows.length === 0 && <Text size="sm" c="dimmed">{t('common.none')}</Text>}
      <Table verticalSpacing={6}>
        <Table.Tbody>
          {rows.slice(0, 200).map((row) => (
            <Table.Tr key={row.machine.metadata.uid}>
              <Table.Td fw={560}><Link to={objectAddress('/machines', row.machine)}>{row.machine.metadata.name}</Link></Table.Td>
              <Table.Td>{row.machine.metadata.namespace}</Table.Td>
              <Table.Td><MachineState row={row} /></Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Card>
  );
}

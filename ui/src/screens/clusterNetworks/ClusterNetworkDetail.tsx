import { ActionIcon, Button, Group, Stack, Table, Text } from '@mantine/core';
import { IconEdit, IconPlus, IconTrash } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { deleteObject } from '@/api/client';
import type { ClusterNetwork, VlanConfig, VlanStatus } from '@/api/cluster';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Notice } from '@/parts/Notice';
import { Card } from '@/parts/Page';
import { factsOf } from '../networks/network';
import { vlanText } from '../networks/NetworkState';
import { ReadyState } from './ReadyState';
import { UplinkDialog } from './UplinkDialog';

const management = 'mgmt';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.clusterNetworks}
      area="/cluster-networks"
      parent={t('clusterNetworks.title')}
      meta={meta}
      facts={(network) => [
        [t('networks.bridge'), `${network.metadata.name}-br`],
        [t('networks.mtu'), network.metadata.annotations?.['network.harvesterhci.io/uplink-mtu']],
        [t('clusterNetworks.vlans'), network.metadata.annotations?.['network.harvesterhci.io/vlan-id-set-str']],
      ]}
      body={body}
      deleteHelp={t('clusterNetworks.deleteHelp')}
    />
  );
}

const meta = (network: ClusterNetwork) => <ReadyState conditions={network.status?.conditions} />;
const body = (network: ClusterNetwork) => <Body name={network.metadata.name} />;

function Body({ name }: { name: string }) {
  return (
    <Stack>
      {name !== management && <Notice>{t('clusterNetworks.storedOnly')}</Notice>}
      <Uplinks network={name} />
      <Networks network={name} />
    </Stack>
  );
}

/** The cards of the hosts that this network leaves them by. */
function Uplinks({ network }: { network: string }) {
  const uplinks = useCollection(kinds.vlanConfigs).items.filter((uplink) => uplink.spec.clusterNetwork === network);
  const statuses = useCollection(kinds.vlanStatuses).items;
  const mayCreate = useMay('create', kinds.vlanConfigs) && network !== management;
  const add = () => openDialog((close) => <UplinkDialog network={network} onClose={close} />);
  return (
    <Card title={t('clusterNetworks.uplinks')} actions={mayCreate && <Button size="xs" variant="default" leftSection={<IconPlus size={14} />} onClick={add}>{t('clusterNetworks.addUplink')}</Button>}>
      {uplinks.length === 0 && <Text size="sm" c="dimmed">{t(network === management ? 'clusterNetworks.mgmtHelp' : 'clusterNetworks.noUplinks')}</Text>}
      {uplinks.length > 0 && (
        <Table.ScrollContainer minWidth={640}>
          <Table verticalSpacing="xs">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('common.name')}</Table.Th><Table.Th>{t('common.state')}</Table.Th><Table.Th>{t('clusterNetworks.cards')}</Table.Th><Table.Th>{t('clusterNetworks.bond')}</Table.Th><Table.Th>{t('networks.mtu')}</Table.Th><Table.Th>{t('hosts.title')}</Table.Th><Table.Th />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>{uplinks.map((uplink) => <UplinkRow key={uplink.metadata.uid} uplink={uplink} statuses={statuses} />)}</Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </Card>
  );
}

function UplinkRow({ uplink, statuses }: { uplink: VlanConfig; statuses: readonly VlanStatus[] }) {
  const mayUpdate = useMay('update', kinds.vlanConfigs);
  const mayDelete = useMay('delete', kinds.vlanConfigs);
  const { name } = uplink.metadata;
  const { nics, bondOptions, linkAttributes } = uplink.spec.uplink;
  const own = statuses.filter(({ status }) => status?.vlanConfig === name);
  const selector = Object.entries(uplink.spec.nodeSelector ?? {}).map(([key, value]) => `${key}=${value}`);
  const remove = () =>
    ask({ title: t('common.deleteTitle', { name }), body: t('clusterNetworks.deleteUplinkHelp'), confirm: t('common.delete'), dangerous: true, run: () => deleteObject(kinds.vlanConfigs, uplink) });
  return (
    <Table.Tr>
      <Table.Td fw={560}>{name}{uplink.spec.description && <Text size="xs" c="dimmed">{uplink.spec.description}</Text>}</Table.Td>
      <Table.Td>
        {own.length === 0 && <ReadyState conditions={uplink.status?.conditions} />}
        {own.map(({ metadata, status }) => <Group key={metadata.uid} gap={6}><Text size="sm">{status?.node}</Text><ReadyState conditions={status?.conditions} /></Group>)}
      </Table.Td>
      <Table.Td>{nics?.join(', ') || '–'}</Table.Td>
      <Table.Td>{bondOptions?.mode ?? '–'}</Table.Td>
      <Table.Td>{linkAttributes?.mtu || '–'}</Table.Td>
      <Table.Td>{selector.join(', ') || t('clusterNetworks.allHosts')}</Table.Td>
      <Table.Td>
        <Group gap={4} justify="flex-end" wrap="nowrap">
          {mayUpdate && <ActionIcon variant="subtle" color="gray" aria-label={`${t('common.edit')}: ${name}`} onClick={() => openDialog((close) => <UplinkDialog network={uplink.spec.clusterNetwork} uplink={uplink} onClose={close} />)}><IconEdit size={16} /></ActionIcon>}
          {mayDelete && <ActionIcon variant="subtle" color="red" aria-label={`${t('common.delete')}: ${name}`} onClick={remove}><IconTrash size={16} /></ActionIcon>}
        </Group>
      </Table.Td>
    </Table.Tr>
  );
}

function Networks({ network }: { network: string }) {
  const networks = useCollection(kinds.networks).items.filter((each) => factsOf(each).clusterNetwork === network);
  return (
    <Card title={t('networks.title')}>
      {networks.length === 0 && <Text size="sm" c="dimmed">{t('common.none')}</Text>}
      <Table verticalSpacing={6}>
        <Table.Tbody>
          {networks.map((each) => (
            <Table.Tr key={each.metadata.uid}>
              <Table.Td fw={560}><Link to={objectAddress('/networks', each)}>{each.metadata.name}</Link></Table.Td>
              <Table.Td>{each.metadata.namespace}</Table.Td>
              <Table.Td>{vlanText(each)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Card>
  );
}

import { Button } from '@mantine/core';
import { IconNetwork, IconPlus } from '@tabler/icons-react';
import { useMemo } from 'react';
import type { NetworkAttachmentDefinition } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column, Facet } from '@/parts/table/columns';
import { factsOf } from './network';
import { NetworkDialog } from './NetworkDialog';
import { NetworkItems } from './NetworkItems';
import { NetworkState, vlanText } from './NetworkState';

export function Screen() {
  const columns = useMemo(() => networkColumns(), []);
  const facets = useMemo(() => networkFacets(), []);
  return (
    <KindList
      kind={kinds.networks}
      area="/networks"
      title={t('networks.title')}
      icon={IconNetwork}
      columns={columns}
      facets={facets}
      create={<CreateButton />}
      menu={menu}
      emptyTitle={t('networks.emptyTitle')}
      emptyHelp={t('networks.emptyHelp')}
      deleteHelp={t('networks.deleteHelp')}
    />
  );
}

const menu = (network: NetworkAttachmentDefinition) => <NetworkItems network={network} />;

function CreateButton() {
  const mayCreate = useMayCreate(kinds.networks);
  if (!mayCreate) return null;
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <NetworkDialog onClose={close} />)}>{t('networks.create')}</Button>;
}

function networkColumns(): Column<NetworkAttachmentDefinition>[] {
  return [
    nameColumn('/networks'),
    namespaceColumn(),
    { id: 'state', title: t('common.state'), value: (network) => network.metadata.labels?.['network.harvesterhci.io/ready'], cell: (network) => <NetworkState network={network} />, width: 'minmax(130px, 1fr)', phone: true },
    { id: 'vlan', title: t('networks.vlan'), value: vlanText, width: 'minmax(110px, 1fr)', phone: true },
    { id: 'clusterNetwork', title: t('networks.clusterNetwork'), value: (network) => factsOf(network).clusterNetwork, cell: (network) => factsOf(network).clusterNetwork || '–' },
    { id: 'bridge', title: t('networks.bridge'), value: (network) => factsOf(network).bridge, cell: (network) => factsOf(network).bridge || '–' },
    { id: 'mtu', title: t('networks.mtu'), value: (network) => factsOf(network).mtu, width: '90px', align: 'end', hidden: true },
    ageColumn(),
  ];
}

function networkFacets(): Facet<NetworkAttachmentDefinition>[] {
  return [{ id: 'clusterNetwork', title: t('networks.clusterNetwork'), values: (network) => [factsOf(network).clusterNetwork].filter(Boolean) }];
}

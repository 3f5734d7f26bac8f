import { Button, Text } from '@mantine/core';
import { IconPlus, IconTopologyStar3 } from '@tabler/icons-react';
import { useMemo, useState } from 'react';
import { createObject } from '@/api/client';
import type { ClusterNetwork } from '@/api/cluster';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { ageColumn, nameColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import { Notice } from '@/parts/Notice';
import { say } from '@/parts/notify';
import type { Column } from '@/parts/table/columns';
import { ReadyState } from './ReadyState';

export function Screen() {
  const uplinks = useCollection(kinds.vlanConfigs).items;
  const columns = useMemo(() => {
    const count = (network: ClusterNetwork) => uplinks.filter((uplink) => uplink.spec.clusterNetwork === network.metadata.name).length;
    return networkColumns(count);
  }, [uplinks]);
  return (
    <KindList
      kind={kinds.clusterNetworks}
      area="/cluster-networks"
      title={t('clusterNetworks.title')}
      icon={IconTopologyStar3}
      columns={columns}
      create={<CreateButton />}
      deleteHelp={t('clusterNetworks.deleteHelp')}
    />
  );
}

function networkColumns(uplinks: (network: ClusterNetwork) => number): Column<ClusterNetwork>[] {
  return [
    nameColumn('/cluster-networks'),
    { id: 'state', title: t('common.state'), value: (network) => network.status?.conditions?.[0]?.status, cell: (network) => <ReadyState conditions={network.status?.conditions} />, width: 'minmax(160px, 2fr)', phone: true },
    { id: 'uplinks', title: t('clusterNetworks.uplinks'), value: uplinks, width: '110px', align: 'end', unsearched: true },
    { id: 'mtu', title: t('networks.mtu'), value: (network) => network.metadata.annotations?.['network.harvesterhci.io/uplink-mtu'], width: '90px', align: 'end' },
    ageColumn(),
  ];
}

function CreateButton() {
  const mayCreate = useMayCreate(kinds.clusterNetworks);
  if (!mayCreate) return null;
  return <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <NewClusterNetwork onClose={close} />)}>{t('clusterNetworks.create')}</Button>;
}

function NewClusterNetwork({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const network: ClusterNetwork = { apiVersion: 'network.harvesterhci.io/v1beta1', kind: 'ClusterNetwork', metadata: { name } };
  return (
    <FormDialog
      title={t('clusterNetworks.create')}
      onClose={onClose}
      submitLabel={t('common.create')}
      incomplete={!isValidName(name) || name.length > 12}
      placed={['metadata.name']}
      objects={[network]}
      command={`kubectl create -f ${name || 'network'}.yaml`}
      run={async () => {
        await createObject(kinds.clusterNetworks, network);
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <>
          <Text size="sm" c="dimmed">{t('clusterNetworks.createHelp')}</Text>
          <Notice>{t('clusterNetworks.storedOnly')}</Notice>
          <NameInput label={t('common.name')} description={t('clusterNetworks.nameHelp')} value={name} onChange={(next) => setName(next.slice(0, 12))} error={refusalOf(error, 'metadata.name')} autoFocus />
        </>
      )}
    </FormDialog>
  );
}

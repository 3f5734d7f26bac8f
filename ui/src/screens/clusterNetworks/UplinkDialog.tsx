import { Group, MultiSelect, NumberInput, Select, Stack, TagsInput, TextInput } from '@mantine/core';
import { useState } from 'react';
import { createObject, replaceObject } from '@/api/client';
import type { VlanConfig } from '@/api/cluster';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { Notice } from '@/parts/Notice';
import { say } from '@/parts/notify';

const modes = ['active-backup', 'balance-rr', 'balance-xor', 'broadcast', '802.3ad', 'balance-tlb', 'balance-alb'];

interface UplinkDialogProps {
  network: string;
  uplink?: VlanConfig;
  onClose: () => void;
}

export function UplinkDialog({ network, uplink, onClose }: UplinkDialogProps) {
  const before = uplink?.spec.uplink;
  const [name, setName] = useState(uplink?.metadata.name ?? `${network}-uplink`);
  const [description, setDescription] = useState(uplink?.spec.description ?? '');
  const [nics, setNics] = useState<string[]>(before?.nics ?? []);
  const [mode, setMode] = useState(before?.bondOptions?.mode ?? 'active-backup');
  const [miimon, setMiimon] = useState<number | ''>(positive(before?.bondOptions?.miimon));
  const [mtu, setMtu] = useState<number | ''>(positive(before?.linkAttributes?.mtu));
  const [hosts, setHosts] = useState(Object.entries(uplink?.spec.nodeSelector ?? {}).map(([key, value]) => `${key}=${value}`));
  const links = useCollection(kinds.linkMonitors).items.find((monitor) => monitor.metadata.name === 'nic')?.status?.linkStatus ?? {};
  const cards = [...new Set([...nics, ...Object.values(links).flat().map((link) => link.name)])].sort();

  const built: VlanConfig = {
    apiVersion: 'network.harvesterhci.io/v1beta1',
    kind: 'VlanConfig',
    metadata: uplink?.metadata ?? { name },
    spec: {
      ...uplink?.spec,
      clusterNetwork: network,
      ...(description && { description }),
      nodeSelector: Object.fromEntries(hosts.map((tag) => [tag.split('=')[0] ?? '', tag.slice(tag.indexOf('=') + 1 || tag.length)])),
      uplink: {
        ...before,
        nics,
        linkAttributes: { ...before?.linkAttributes, ...(mtu === '' ? {} : { mtu }) },
        bondOptions: { ...before?.bondOptions, mode, ...(miimon === '' ? {} : { miimon }) },
      },
    },
  };
  return (
    <FormDialog
      title={uplink ? t('clusterNetworks.editUplink', { name }) : t('clusterNetworks.addUplink')}
      onClose={onClose}
      size="lg"
      submitLabel={uplink ? t('common.save') : t('common.create')}
      incomplete={!isValidName(name) || nics.length === 0}
      placed={['metadata.name', 'spec.uplink.nics', 'spec.uplink.linkAttributes.mtu', 'spec.nodeSelector']}
      objects={[built]}
      command={`kubectl ${uplink ? 'replace' : 'create'} -f ${name}.yaml`}
      run={async () => {
        await (uplink ? replaceObject(kinds.vlanConfigs, built) : createObject(kinds.vlanConfigs, built));
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <Stack>
          <Notice>{t('clusterNetworks.storedOnly')}</Notice>
          {!uplink && <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />}
          <TextInput label={t('common.description')} value={description} onChange={(event) => setDescription(event.currentTarget.value)} />
          <MultiSelect label={t('clusterNetworks.cards')} description={t('clusterNetworks.cardsHelp')} required searchable data={cards} value={nics} onChange={setNics} error={refusalOf(error, 'spec.uplink.nics')} />
          <Group grow align="flex-end">
            <Select label={t('clusterNetworks.bond')} description={t('clusterNetworks.bondHelp')} data={modes} allowDeselect={false} value={mode} onChange={(next) => setMode(next ?? 'active-backup')} />
            <NumberInput label={t('clusterNetworks.miimon')} description={t('clusterNetworks.miimonHelp')} min={0} suffix=" ms" value={miimon} onChange={(next) => setMiimon(next === '' ? '' : Number(next))} />
            <NumberInput label={t('networks.mtu')} description={t('networks.mtuHelp')} min={576} max={9000} value={mtu} onChange={(next) => setMtu(next === '' ? '' : Number(next))} error={refusalOf(error, 'spec.uplink.linkAttributes.mtu')} />
          </Group>
          <TagsInput label={t('clusterNetworks.hosts')} description={t('clusterNetworks.hostsHelp')} value={hosts} onChange={setHosts} acceptValueOnBlur error={refusalOf(error, 'spec.nodeSelector')} />
        </Stack>
      )}
    </FormDialog>
  );
}

/** Minus one means the default. */
function positive(value: number | undefined): number | '' {
  return value !== undefined && value > 0 ? value : '';
}

import { Checkbox, Group, NumberInput, SegmentedControl, Select, Stack, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { createObject, replaceObject } from '@/api/client';
import type { NetworkAttachmentDefinition } from '@/api/cluster';
import { useCollection } from '@/api/collections';
import type { ApiError } from '@/api/errors';
import { kinds } from '@/api/kinds';
import { useDefaultNamespace, useNamespaceNames } from '@/app/namespace';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { Notice } from '@/parts/Notice';
import { say } from '@/parts/notify';
import type { NetworkForm, Route } from './network';
import { build, emptyForm, formOf } from './network';

interface NetworkDialogProps {
  /** The one to change; a new one without. */
  network?: NetworkAttachmentDefinition;
  onClose: () => void;
}

/** Makes or changes a network that machines can be put on. */
export function NetworkDialog({ network, onClose }: NetworkDialogProps) {
  const namespace = useDefaultNamespace();
  const [form, setForm] = useState<NetworkForm>(() => (network ? formOf(network) : emptyForm(namespace)));
  const change = (changes: Partial<NetworkForm>) => setForm((before) => ({ ...before, ...changes }));
  const built = build(form, network);
  const { route } = form;
  const incomplete =
    !isValidName(form.name) ||
    (form.on === 'host' ? form.bridge.trim() === '' : form.clusterNetwork === '') ||
    (form.tagged && form.vlan === '') ||
    (form.tagged && route.mode === 'manual' && (route.cidr === '' || route.gateway === ''));
  return (
    <FormDialog
      title={network ? t('networks.editTitle', { name: form.name }) : t('networks.create')}
      onClose={onClose}
      size="lg"
      submitLabel={network ? t('common.save') : t('common.create')}
      incomplete={incomplete}
      placed={['metadata.name', 'spec.config']}
      objects={[built]}
      command={`kubectl ${network ? 'replace' : 'create'} -f ${form.name || 'network'}.yaml`}
      run={async () => {
        await (network ? replaceObject(kinds.networks, built) : createObject(kinds.networks, built));
        say(t('common.saved'));
      }}
    >
      {(error) => <Fields form={form} change={change} error={error} fixed={network !== undefined} />}
    </FormDialog>
  );
}

interface FieldsProps {
  form: NetworkForm;
  change: (changes: Partial<NetworkForm>) => void;
  error: ApiError | null;
  /** Name and bridge of a network cannot be changed. */
  fixed: boolean;
}

function Fields({ form, change, error, fixed }: FieldsProps) {
  const namespaces = useNamespaceNames();
  return (
    <Stack>
      {!fixed && (
        <Group grow align="flex-start">
          <NameInput label={t('common.name')} value={form.name} onChange={(name) => change({ name })} error={refusalOf(error, 'metadata.name')} autoFocus />
          <Select label={t('common.namespace')} data={namespaces.includes(form.namespace) ? namespaces : [form.namespace, ...namespaces]} allowDeselect={false} searchable value={form.namespace} onChange={(namespace) => change({ namespace: namespace ?? 'default' })} />
        </Group>
      )}
      <TextInput label={t('common.description')} value={form.description} onChange={(event) => change({ description: event.currentTarget.value })} />
      {!fixed && <BridgeFields form={form} change={change} />}
      <div>
        <Text size="sm" fw={500} mb={4}>{t('networks.kind')}</Text>
        <SegmentedControl fullWidth value={form.tagged ? 'vlan' : 'untagged'} onChange={(value) => change({ tagged: value === 'vlan' })} data={[{ value: 'vlan', label: t('networks.vlan') }, { value: 'untagged', label: t('networks.untagged') }]} />
      </div>
      <Group grow align="flex-start">
        {form.tagged && <NumberInput label={t('networks.vlanId')} description={t('networks.vlanHelp')} required min={1} max={4094} allowDecimal={false} value={form.vlan} onChange={(vlan) => change({ vlan: vlan === '' ? '' : Number(vlan) })} error={refusalOf(error, 'spec.config')} />}
        <NumberInput label={t('networks.mtu')} description={t('networks.mtuHelp')} min={576} max={9000} allowDecimal={false} value={form.mtu} onChange={(mtu) => change({ mtu: mtu === '' ? '' : Number(mtu) })} error={form.tagged ? undefined : refusalOf(error, 'spec.config')} />
      </Group>
      {form.on === 'host' && <Checkbox label={t('networks.spoofCheck')} description={t('networks.spoofCheckHelp')} checked={form.spoofCheck} onChange={(event) => change({ spoofCheck: event.currentTarget.checked })} />}
      {form.tagged && <RouteFields route={form.route} onChange={(route) => change({ route })} />}
    </Stack>
  );
}

function BridgeFields({ form, change }: Pick<FieldsProps, 'form' | 'change'>) {
  const clusterNetworks = useCollection(kinds.clusterNetworks).items;
  const chosen = clusterNetworks.find((each) => each.metadata.name === form.clusterNetwork);
  const ready = chosen?.status?.conditions?.some((condition) => condition.type === 'ready' && condition.status === 'True');
  return (
    <>
      <div>
        <Text size="sm" fw={500} mb={4}>{t('networks.on')}</Text>
        <SegmentedControl fullWidth value={form.on} onChange={(value) => change({ on: value as NetworkForm['on'] })} data={[{ value: 'host', label: t('networks.onHost') }, { value: 'cluster', label: t('networks.onCluster') }]} />
      </div>
      {form.on === 'host' ? (
        <TextInput label={t('networks.bridge')} description={t('networks.bridgeHelp')} required maxLength={15} spellCheck={false} value={form.bridge} onChange={(event) => change({ bridge: event.currentTarget.value.trim() })} />
      ) : (
        <>
          <Select label={t('networks.clusterNetwork')} description={t('networks.clusterNetworkHelp', { bridge: `${form.clusterNetwork}-br` })} required allowDeselect={false} data={clusterNetworks.map((each) => each.metadata.name)} value={form.clusterNetwork} onChange={(name) => change({ clusterNetwork: name ?? '' })} />
          {chosen && !ready && <Notice>{t('networks.notReadyHelp', { name: form.clusterNetwork })}</Notice>}
        </>
      )}
    </>
  );
}

function RouteFields({ route, onChange }: { route: Route; onChange: (route: Route) => void }) {
  return (
    <Stack gap="xs">
      <div>
        <Text size="sm" fw={500}>{t('networks.route')}</Text>
        <Text size="xs" c="dimmed" mb={4}>{t('networks.routeHelp')}</Text>
        <SegmentedControl fullWidth value={route.mode} onChange={(mode) => onChange({ ...route, mode: mode as Route['mode'] })} data={[{ value: 'auto', label: t('networks.routeAuto') }, { value: 'manual', label: t('networks.routeManual') }]} />
      </div>
      {route.mode === 'auto' ? (
        <TextInput label={t('networks.dhcpServer')} value={route.serverIPAddr} onChange={(event) => onChange({ ...route, serverIPAddr: event.currentTarget.value })} />
      ) : (
        <Group grow align="flex-start">
          <TextInput label={t('networks.cidr')} placeholder="192.0.2.0/24" required value={route.cidr} onChange={(event) => onChange({ ...route, cidr: event.currentTarget.value })} />
          <TextInput label={t('networks.gateway')} placeholder="192.0.2.1" required value={route.gateway} onChange={(event) => onChange({ ...route, gateway: event.currentTarget.value })} />
        </Group>
      )}
    </Stack>
  );
}

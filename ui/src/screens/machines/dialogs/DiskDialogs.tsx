import { SegmentedControl, Select, Text } from '@mantine/core';
import { useState } from 'react';
import { createObject, deleteObject, mergePatch, steveAction } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { PersistentVolumeClaim } from '@/api/core';
import { kinds } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import { parseQuantity } from '@/api/quantity';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName, randomSuffix } from '@/parts/form/names';
import { SizeInput } from '@/parts/form/SizeInput';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { useChoices } from '../create/useChoices';

interface MachineDialogProps {
  machine: VirtualMachine;
  onClose: () => void;
}

/** A new or an existing volume becomes a disk, at once also in a guest that runs. */
export function AddDiskDialog({ machine, onClose }: MachineDialogProps) {
  const { name, namespace = 'default' } = machine.metadata;
  const choices = useChoices(namespace);
  const taken = machine.spec.template.spec.domain.devices.disks ?? [];
  const [kind, setKind] = useState<'new' | 'existing'>('new');
  const [disk, setDisk] = useState(`disk-${taken.length}`);
  const [size, setSize] = useState('10Gi');
  const [storageClass, setStorageClass] = useState('');
  const [volume, setVolume] = useState<string | null>(null);
  const [suffix] = useState(() => randomSuffix());
  const claim: PersistentVolumeClaim = {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: `${name}-${disk}-${suffix}`, namespace },
    spec: { accessModes: ['ReadWriteMany'], volumeMode: 'Block', resources: { requests: { storage: size } }, ...(storageClass && { storageClassName: storageClass }) },
  };

  const run = async () => {
    const source = kind === 'new' ? claim.metadata.name : (volume ?? '');
    if (kind === 'new') await createObject(kinds.volumes, claim);
    try {
      await steveAction(kinds.machines, machine, 'addVolume', { diskName: disk, volumeSourceName: source });
    } catch (error) {
      // A volume that did not become a disk would be left behind.
      if (kind === 'new') await deleteObject(kinds.volumes, claim).catch(() => undefined);
      throw error;
    }
    say(t('common.actionDone', { action: t('detail.addDisk'), name: disk }));
  };
  return (
    <FormDialog title={t('detail.addDiskTitle', { name })} onClose={onClose} run={run} submitLabel={t('common.add')} incomplete={!isValidName(disk) || (kind === 'existing' ? !volume : size === '')} {...(kind === 'new' && { objects: [claim] })}>
      <SegmentedControl value={kind} onChange={(value) => setKind(value as typeof kind)} data={[{ value: 'new', label: t('detail.newVolume') }, { value: 'existing', label: t('detail.existingVolume') }]} />
      <NameInput label={t('detail.diskName')} value={disk} onChange={setDisk} />
      {kind === 'new' ? (
        <>
          <SizeInput label={t('common.size')} value={size} onChange={setSize} />
          <Select label={t('create.storageClass')} allowDeselect={false} data={choices.classOptions} value={storageClass} onChange={(value) => setStorageClass(value ?? '')} />
        </>
      ) : (
        <Select label={t('create.volume')} searchable data={choices.volumeOptions} value={volume} onChange={setVolume} />
      )}
    </FormDialog>
  );
}

export function ExpandDialog({ claim, onClose }: { claim: PersistentVolumeClaim; onClose: () => void }) {
  const now = claim.spec?.resources?.requests?.storage ?? '';
  const [size, setSize] = useState(now);
  const patch = { spec: { resources: { requests: { storage: size } } } };
  const run = async () => {
    await mergePatch(kinds.volumes, claim, patch);
    say(t('common.saved'));
  };
  const command = `kubectl patch pvc ${claim.metadata.name} -n ${claim.metadata.namespace} --type merge -p '${JSON.stringify(patch)}'`;
  return (
    <FormDialog title={t('detail.expandTitle', { name: claim.metadata.name })} onClose={onClose} run={run} submitLabel={t('detail.expand')} incomplete={(parseQuantity(size) ?? 0) <= (parseQuantity(now) ?? 0)} command={command} placed={['spec.resources.requests.storage']}>
      {(error) => (
        <>
          <Text size="sm" c="dimmed">{t('detail.expandHelp')}</Text>
          <SizeInput label={t('detail.newSize')} value={size} onChange={setSize} error={refusalOf(error, 'spec.resources.requests.storage')} />
        </>
      )}
    </FormDialog>
  );
}

export function InsertCdDialog({ machine, disk, onClose }: MachineDialogProps & { disk: string }) {
  const choices = useChoices(machine.metadata.namespace ?? 'default');
  const [image, setImage] = useState<string | null>(null);
  const run = async () => {
    // Harvester spells this field with a capital letter.
    await steveAction(kinds.machines, machine, 'insertCdRomVolume', { DeviceName: disk, deviceName: disk, imageName: image });
  };
  return (
    <FormDialog title={t('detail.insertTitle', { disk })} onClose={onClose} run={run} submitLabel={t('detail.insert')} incomplete={!image}>
      <Select label={t('create.image')} searchable data={choices.imageOptions} value={image} onChange={setImage} />
    </FormDialog>
  );
}

export function AddNicDialog({ machine, onClose }: MachineDialogProps) {
  const { name } = machine.metadata;
  const networks = useCollection(kinds.networks).items;
  const taken = machine.spec.template.spec.domain.devices.interfaces ?? [];
  const [nic, setNic] = useState(`nic-${taken.length}`);
  const [network, setNetwork] = useState<string | null>(null);
  const run = async () => {
    await steveAction(kinds.machines, machine, 'addNic', { interfaceName: nic, networkName: network, macAddress: '' });
    say(t('common.actionDone', { action: t('detail.addNic'), name: nic }));
  };
  return (
    <FormDialog title={t('detail.addNicTitle', { name })} onClose={onClose} run={run} submitLabel={t('common.add')} incomplete={!network || !isValidName(nic)}>
      <NameInput label={t('detail.nicName')} value={nic} onChange={setNic} />
      <Select label={t('create.network')} {...(networks.length === 0 && { description: t('detail.noNetworks') })} data={networks.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`)} value={network} onChange={setNetwork} />
    </FormDialog>
  );
}

import { SegmentedControl, Select, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { createObject, steveAction } from '@/api/client';
import type { PersistentVolumeClaim } from '@/api/core';
import { kinds } from '@/api/kinds';
import { binaryQuantity } from '@/api/quantity';
import type { KubeObject } from '@/api/types';
import { useDefaultNamespace, useNamespaceNames } from '@/app/namespace';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { SizeInput } from '@/parts/form/SizeInput';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { useChoices } from '../machines/create/useChoices';
import { timedName } from '../machines/operations';

const gib = 2 ** 30;

export function NewVolumeDialog({ onClose }: { onClose: () => void }) {
  const namespaces = useNamespaceNames();
  const [namespace, setNamespace] = useState(useDefaultNamespace());
  const choices = useChoices(namespace);
  const [name, setName] = useState('');
  const [source, setSource] = useState<'blank' | 'image'>('blank');
  const [image, setImage] = useState<string | null>(null);
  const [size, setSize] = useState('10Gi');
  const [storageClass, setStorageClass] = useState('');
  const className = source === 'image' && image ? choices.classOf(image) : storageClass;
  const object: PersistentVolumeClaim = {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name, namespace, ...(source === 'image' && image && { annotations: { 'harvesterhci.io/imageId': image } }) },
    spec: { accessModes: ['ReadWriteMany'], volumeMode: 'Block', resources: { requests: { storage: size } }, ...(className && { storageClassName: className }) },
  };
  const chooseImage = (id: string | null) => {
    setImage(id);
    const smallest = id ? (choices.imageById.get(id)?.virtualSize ?? 0) : 0;
    if (smallest > 0) setSize(binaryQuantity(Math.max(10, Math.ceil(smallest / gib)) * gib));
  };
  const run = async () => {
    await createObject(kinds.volumes, object);
    say(t('common.actionDone', { action: t('volumes.create'), name }));
  };
  return (
    <FormDialog title={t('volumes.newTitle')} onClose={onClose} run={run} submitLabel={t('common.create')} incomplete={!isValidName(name) || size === '' || (source === 'image' && !image)} objects={[object]} placed={['metadata.name', 'spec.resources']}>
      {(error) => (
        <>
          <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />
          <Select label={t('common.namespace')} allowDeselect={false} searchable data={namespaces} value={namespace} onChange={(value) => setNamespace(value ?? 'default')} />
          <SegmentedControl value={source} onChange={(value) => setSource(value as typeof source)} data={[{ value: 'blank', label: t('volumes.blank') }, { value: 'image', label: t('volumes.fromImage') }]} />
          {source === 'image' ? (
            <Select label={t('volumes.image')} searchable data={choices.imageOptions} value={image} onChange={chooseImage} />
          ) : (
            <Select label={t('volumes.class')} allowDeselect={false} data={choices.classOptions} value={storageClass} onChange={(value) => setStorageClass(value ?? '')} />
          )}
          <SizeInput label={t('common.size')} value={size} onChange={setSize} error={refusalOf(error, 'spec.resources')} />
        </>
      )}
    </FormDialog>
  );
}

interface VolumeDialogProps {
  volume: PersistentVolumeClaim;
  onClose: () => void;
}

export function CloneVolumeDialog({ volume, onClose }: VolumeDialogProps) {
  const [name, setName] = useState(`${volume.metadata.name}-copy`.slice(0, 63));
  const run = async () => {
    await steveAction(kinds.volumes, volume, 'clone', { name });
    say(t('common.actionDone', { action: t('volumes.clone'), name }));
  };
  return (
    <FormDialog title={t('volumes.cloneTitle', { name: volume.metadata.name })} onClose={onClose} run={run} submitLabel={t('volumes.clone')} incomplete={!isValidName(name)}>
      <NameInput label={t('volumes.newName')} value={name} onChange={setName} autoFocus />
    </FormDialog>
  );
}

export function ExportDialog({ volume, onClose }: VolumeDialogProps) {
  const [displayName, setDisplayName] = useState(volume.metadata.name);
  const run = async () => {
    await steveAction(kinds.volumes, volume, 'export', { displayName, namespace: volume.metadata.namespace });
    say(t('common.actionDone', { action: t('volumes.export'), name: displayName }));
  };
  return (
    <FormDialog title={t('volumes.exportTitle', { name: volume.metadata.name })} onClose={onClose} run={run} submitLabel={t('volumes.export')} incomplete={displayName.trim() === ''}>
      <Text size="sm" c="dimmed">{t('volumes.exportHelp')}</Text>
      <TextInput label={t('common.name')} data-autofocus value={displayName} onChange={(event) => setDisplayName(event.currentTarget.value)} />
    </FormDialog>
  );
}

export function SnapshotVolumeDialog({ volume, onClose }: VolumeDialogProps) {
  const [name, setName] = useState(() => timedName(volume.metadata.name));
  const run = async () => {
    await steveAction(kinds.volumes, volume, 'snapshot', { name });
    say(t('common.actionDone', { action: t('volumes.snapshot'), name }));
  };
  return (
    <FormDialog title={t('volumes.snapshotTitle', { name: volume.metadata.name })} onClose={onClose} run={run} submitLabel={t('volumes.snapshot')} incomplete={!isValidName(name)}>
      <NameInput label={t('common.name')} value={name} onChange={setName} autoFocus />
    </FormDialog>
  );
}

/** A new volume of what a snapshot holds. */
export function RestoreVolumeDialog({ snapshot, volume, onClose }: { snapshot: KubeObject; volume: string; onClose: () => void }) {
  const [name, setName] = useState(`${volume}-restored`.slice(0, 63));
  const run = async () => {
    await steveAction(kinds.volumeSnapshots, snapshot, 'restore', { name });
    say(t('common.actionDone', { action: t('volumes.restoreSnapshot'), name }));
  };
  return (
    <FormDialog title={t('volumes.restoreTitle', { name: snapshot.metadata.name })} onClose={onClose} run={run} submitLabel={t('volumes.restoreSnapshot')} incomplete={!isValidName(name)}>
      <NameInput label={t('volumes.newName')} value={name} onChange={setName} autoFocus />
    </FormDialog>
  );
}

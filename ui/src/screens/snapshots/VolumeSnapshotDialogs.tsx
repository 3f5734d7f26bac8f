import { Alert, Select, Text } from '@mantine/core';
import { useState } from 'react';
import { createObject, request, steveAction } from '@/api/client';
import { useCollection } from '@/api/collections';
import { kinds, stevePath } from '@/api/kinds';
import type { VolumeSnapshot } from '@/api/storage';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { NamespaceSelect } from '@/parts/form/NamespaceSelect';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { timedName } from '@/screens/machines/operations';
import { snapshotObject, volumeOf } from './volumeSnapshot';

/** A snapshot of one volume. */
export function NewVolumeSnapshot({ onClose }: { onClose: () => void }) {
  const [namespace, setNamespace] = useState(useDefaultNamespace());
  const [volume, setVolume] = useState('');
  const [name, setName] = useState('');
  const [snapshotClass, setSnapshotClass] = useState('');
  const volumes = useCollection(kinds.volumes, { namespace }).items;
  const classes = useCollection(kinds.volumeSnapshotClasses).items;
  const object = snapshotObject(name, namespace, volume, snapshotClass);
  const choose = (chosen: string | null) => {
    setVolume(chosen ?? '');
    setName(chosen ? timedName(chosen) : '');
  };
  const run = async () => {
    await createObject(kinds.volumeSnapshots, object);
    say(t('common.actionDone', { action: t('machines.snapshot'), name }));
  };
  return (
    <FormDialog title={t('snapshots.newOfVolume')} onClose={onClose} run={run} submitLabel={t('machines.snapshot')} incomplete={volume === '' || !isValidName(name)} objects={[object]} command={`croft snapshot create ${volume || 'VOLUME'} --volume --name ${name} -n ${namespace}`} placed={['metadata.name', 'spec.source', 'spec.volumeSnapshotClassName']}>
      {(error) => (
        <>
          <NamespaceSelect value={namespace} onChange={(next) => { setNamespace(next); choose(null); }} />
          <Select label={t('backups.volume')} required searchable data={volumes.map(({ metadata }) => metadata.name).sort()} value={volume || null} onChange={choose} error={refusalOf(error, 'spec.source')} nothingFoundMessage={t('snapshots.noVolumes')} data-autofocus />
          <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} />
          <Select label={t('snapshots.where')} allowDeselect={false} data={[{ value: '', label: t('snapshots.here') }, ...classes.filter((each) => each.parameters?.['type'] === 'bak').map(({ metadata }) => ({ value: metadata.name, label: `${t('snapshots.inTarget')} (${metadata.name})` }))]} value={snapshotClass} onChange={(chosen) => setSnapshotClass(chosen ?? '')} error={refusalOf(error, 'spec.volumeSnapshotClassName')} />
        </>
      )}
    </FormDialog>
  );
}

/** Another volume with what the snapshot holds. */
export function RestoreVolumeDialog({ snapshot, onClose }: { snapshot: VolumeSnapshot; onClose: () => void }) {
  const { name: of, namespace } = snapshot.metadata;
  const [name, setName] = useState(`${volumeOf(snapshot) ?? of}-restored`.slice(0, 63));
  const [storageClass, setStorageClass] = useState('');
  const classes = useCollection(kinds.storageClasses).items;
  const run = async () => {
    await steveAction(kinds.volumeSnapshots, snapshot, 'restore', { name, ...(storageClass && { storageClassName: storageClass }) });
    say(t('common.actionDone', { action: t('detail.restore'), name }));
  };
  return (
    <FormDialog title={t('detail.restoreTitle', { name: of })} onClose={onClose} run={run} submitLabel={t('detail.restore')} incomplete={!isValidName(name)} command={`croft snapshot restore ${of} --volume --to ${name} -n ${namespace}`}>
      <Text size="sm" c="dimmed">{t('snapshots.restoreHelp')}</Text>
      <NameInput label={t('snapshots.newVolume')} value={name} onChange={setName} autoFocus />
      <Select label={t('create.storageClass')} allowDeselect={false} data={[{ value: '', label: t('snapshots.sameClass') }, ...classes.map(({ metadata }) => metadata.name)]} value={storageClass} onChange={(chosen) => setStorageClass(chosen ?? '')} />
    </FormDialog>
  );
}

/** The volume becomes what it was, in its place. */
export function RevertVolumeDialog({ snapshot, onClose }: { snapshot: VolumeSnapshot; onClose: () => void }) {
  const { name, namespace = 'default' } = snapshot.metadata;
  const volume = volumeOf(snapshot) ?? '';
  const run = async () => {
    await request('POST', `${stevePath(kinds.volumes)}/${encodeURIComponent(namespace)}/${encodeURIComponent(volume)}?action=revert`, { snapshot: name });
    say(t('common.actionDone', { action: t('snapshots.revert'), name: volume }));
  };
  return (
    <FormDialog title={t('snapshots.revertTitle', { volume })} onClose={onClose} run={run} submitLabel={t('snapshots.revert')} dangerous command={`croft snapshot restore ${name} --volume --replace -n ${namespace}`}>
      <Alert color="yellow">{t('snapshots.revertHelp')}</Alert>
    </FormDialog>
  );
}

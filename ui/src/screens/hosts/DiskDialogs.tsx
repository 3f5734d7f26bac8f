import { Checkbox, Stack, TagsInput, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { createObject, mergePatch } from '@/api/client';
import type { BlockDevice } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { nameFrom, randomSuffix } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { Notice } from '@/parts/Notice';
import { say } from '@/parts/notify';
import { diskName } from './disk';

const apiVersion = 'harvesterhci.io/v1beta1';

function commandFor(disk: BlockDevice, patch: unknown): string {
  return `kubectl -n ${disk.metadata.namespace} patch blockdevices.harvesterhci.io ${disk.metadata.name} --type merge -p '${JSON.stringify(patch)}'`;
}

/** Has a disk carry volumes. What is on it is lost, which has to be said. */
export function UseDiskDialog({ disk, onClose }: { disk: BlockDevice; onClose: () => void }) {
  const device = disk.status?.deviceStatus;
  const holdsSomething = Boolean(device?.fileSystem?.type) || device?.partitioned === true;
  const [format, setFormat] = useState(false);
  const [tags, setTags] = useState<string[]>(disk.spec.tags ?? []);
  const patch = { spec: { provision: true, tags, fileSystem: { mountPoint: '', forceFormatted: format } } };
  const { name, namespace } = disk.metadata;
  return (
    <FormDialog
      title={t('hosts.useDiskTitle', { name: diskName(disk) })}
      onClose={onClose}
      submitLabel={t('hosts.useDisk')}
      dangerous={format}
      placed={['spec.tags', 'spec.fileSystem']}
      objects={[{ apiVersion, kind: 'BlockDevice', metadata: { name, namespace }, ...patch }]}
      command={commandFor(disk, patch)}
      run={async () => {
        await mergePatch(kinds.blockDevices, disk, patch);
        say(t('common.actionDone', { action: t('hosts.useDisk'), name: diskName(disk) }));
      }}
    >
      {(error) => (
        <Stack>
          <Text>{t('hosts.useDiskHelp')}</Text>
          {holdsSomething && <Notice>{t('hosts.holdsSomething', { what: device?.fileSystem?.type || t('hosts.partitions') })}</Notice>}
          <Checkbox label={t('hosts.format')} description={t('hosts.formatHelp')} checked={format} onChange={(event) => setFormat(event.currentTarget.checked)} error={refusalOf(error, 'spec.fileSystem')} />
          <TagsInput label={t('hosts.tags')} description={t('hosts.tagsHelp')} value={tags} onChange={setTags} acceptValueOnBlur error={refusalOf(error, 'spec.tags')} />
        </Stack>
      )}
    </FormDialog>
  );
}

export function TagsDialog({ disk, onClose }: { disk: BlockDevice; onClose: () => void }) {
  const [tags, setTags] = useState<string[]>(disk.spec.tags ?? []);
  const patch = { spec: { tags } };
  const { name, namespace } = disk.metadata;
  return (
    <FormDialog
      title={t('hosts.tagsTitle', { name: diskName(disk) })}
      onClose={onClose}
      submitLabel={t('common.save')}
      placed={['spec.tags']}
      objects={[{ apiVersion, kind: 'BlockDevice', metadata: { name, namespace }, ...patch }]}
      command={commandFor(disk, patch)}
      run={async () => {
        await mergePatch(kinds.blockDevices, disk, patch);
        say(t('common.saved'));
      }}
    >
      {(error) => <TagsInput label={t('hosts.tags')} description={t('hosts.tagsHelp')} value={tags} onChange={setTags} acceptValueOnBlur data-autofocus error={refusalOf(error, 'spec.tags')} />}
    </FormDialog>
  );
}

/** What software makes (RAID, logical volumes) is not offered by itself, and has to be named. */
export function AddDeviceDialog({ node, onClose }: { node: string; onClose: () => void }) {
  const [path, setPath] = useState('');
  const [suffix] = useState(() => randomSuffix());
  const disk: BlockDevice = {
    apiVersion,
    kind: 'BlockDevice',
    metadata: { name: `${nameFrom(`${node}-${path}`)}-${suffix}`, namespace: 'longhorn-system' },
    spec: { nodeName: node, devPath: path, provision: false, fileSystem: { mountPoint: '' } },
  };
  return (
    <FormDialog
      title={t('hosts.addDevice')}
      onClose={onClose}
      submitLabel={t('common.add')}
      incomplete={!path.startsWith('/dev/')}
      placed={['spec.devPath']}
      objects={[disk]}
      run={async () => {
        await createObject(kinds.blockDevices, disk);
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <Stack>
          <Text size="sm" c="dimmed">{t('hosts.addDeviceHelp')}</Text>
          <TextInput label={t('hosts.device')} placeholder="/dev/md0" required data-autofocus spellCheck={false} value={path} onChange={(event) => setPath(event.currentTarget.value)} error={refusalOf(error, 'spec.devPath')} />
        </Stack>
      )}
    </FormDialog>
  );
}

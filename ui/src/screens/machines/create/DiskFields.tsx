import { ActionIcon, Button, Group, Select, Text, TextInput, Tooltip } from '@mantine/core';
import { IconArrowUp, IconPlus, IconTrash } from '@tabler/icons-react';
import type { DiskBus } from '@/api/kubevirt';
import { t } from '@/i18n';
import { SizeInput } from '@/parts/form/SizeInput';
import classes from './Create.module.css';
import type { ChoiceFieldsProps } from './fields';
import type { DiskForm, DiskSource } from './form';
import { newDisk } from './form';
import type { Choices } from './useChoices';

const sources = [
  { value: 'image', label: 'create.sourceImage' },
  { value: 'blank', label: 'create.sourceBlank' },
  { value: 'volume', label: 'create.sourceVolume' },
  { value: 'container', label: 'create.sourceContainer' },
  { value: 'cdrom', label: 'create.sourceCdrom' },
] as const;

/** All disks of the new machine, in the order that it tries to boot from them. */
export function DiskFields({ form, change, choices }: ChoiceFieldsProps) {
  const set = (disks: DiskForm[]) => change({ disks });
  const moveUp = (index: number) => {
    const disks = [...form.disks];
    const [moved] = disks.splice(index, 1);
    if (moved) disks.splice(index - 1, 0, moved);
    set(disks);
  };
  return (
    <>
      <Text size="sm" c="dimmed">{t('create.bootOrder')}</Text>
      {form.disks.map((disk, index) => (
        <div className={classes.item} key={disk.id}>
          <DiskRow disk={disk} choices={choices} onChange={(changes) => set(form.disks.map((each) => (each === disk ? { ...disk, ...changes } : each)))} />
          <Group gap={4} wrap="nowrap">
            <Tooltip label={t('create.moveUp')}><ActionIcon variant="subtle" color="gray" disabled={index === 0} aria-label={t('create.moveUp')} onClick={() => moveUp(index)}><IconArrowUp size={16} /></ActionIcon></Tooltip>
            <Tooltip label={t('common.remove')}><ActionIcon variant="subtle" color="gray" aria-label={t('common.remove')} onClick={() => set(form.disks.filter((each) => each !== disk))}><IconTrash size={16} /></ActionIcon></Tooltip>
          </Group>
        </div>
      ))}
      <Button mt="sm" variant="default" size="xs" leftSection={<IconPlus size={14} />} onClick={() => set([...form.disks, newDisk('blank')])}>{t('create.addDisk')}</Button>
    </>
  );
}

function DiskRow({ disk, choices, onChange }: { disk: DiskForm; choices: Choices; onChange: (changes: Partial<DiskForm>) => void }) {
  const sized = disk.source === 'image' || disk.source === 'blank';
  return (
    <>
      <Select label={t('create.source')} allowDeselect={false} data={sources.map(({ value, label }) => ({ value, label: t(label) }))} value={disk.source} onChange={(source) => onChange({ source: (source ?? 'blank') as DiskSource, bus: source === 'cdrom' ? 'sata' : 'virtio' })} />
      {disk.source === 'image' && <Select label={t('create.image')} searchable data={choices.imageOptions} value={disk.image || null} onChange={(image) => onChange({ image: image ?? '' })} />}
      {disk.source === 'cdrom' && <Select label={t('create.cdImage')} searchable clearable data={choices.imageOptions} value={disk.image || null} onChange={(image) => onChange({ image: image ?? '' })} />}
      {disk.source === 'volume' && <Select label={t('create.volume')} searchable data={choices.volumeOptions} value={disk.volume || null} onChange={(volume) => onChange({ volume: volume ?? '' })} />}
      {disk.source === 'container' && <TextInput label={t('create.container')} placeholder="registry.example/disk:latest" value={disk.container} onChange={(event) => onChange({ container: event.currentTarget.value })} />}
      {sized && <SizeInput label={t('common.size')} value={disk.size} onChange={(size) => onChange({ size })} />}
      {disk.source === 'blank' && <Select label={t('create.storageClass')} allowDeselect={false} data={choices.classOptions} value={disk.storageClass} onChange={(storageClass) => onChange({ storageClass: storageClass ?? '' })} />}
      <Select label={t('create.bus')} allowDeselect={false} data={['virtio', 'scsi', 'sata', 'usb']} value={disk.bus} onChange={(bus) => onChange({ bus: (bus ?? 'virtio') as DiskBus })} />
    </>
  );
}

import { Radio, Select, Stack, Switch, TagsInput, TextInput } from '@mantine/core';
import type { RunStrategy } from '@/api/kubevirt';
import { t } from '@/i18n';
import classes from './Create.module.css';
import type { ChoiceFieldsProps, FieldsProps } from './fields';
import type { Firmware } from './form';

export function FirmwareFields({ form, change }: FieldsProps) {
  return (
    <Stack>
      <Radio.Group aria-label={t('create.firmware')} value={form.firmware} onChange={(firmware) => change({ firmware: firmware as Firmware })}>
        <Stack gap={8}>
          <Radio value="bios" label={t('create.bios')} />
          <Radio value="uefi" label={t('create.uefi')} />
          <Radio value="secureBoot" label={t('create.secureBoot')} />
        </Stack>
      </Radio.Group>
      <Switch label={t('create.tpm')} description={t('create.tpmHelp')} checked={form.tpm} onChange={(event) => change({ tpm: event.currentTarget.checked })} />
      <Select label={t('create.machineType')} data={[{ value: '', label: t('create.defaultClass') }, 'q35', 'pc']} allowDeselect={false} value={form.machineType} onChange={(machineType) => change({ machineType: machineType ?? '' })} />
    </Stack>
  );
}

const strategies = ['RerunOnFailure', 'Always', 'Manual', 'Once', 'Halted'] as const;

export function RunningFields({ form, change, choices }: ChoiceFieldsProps) {
  return (
    <div className={classes.columns}>
      <Select label={t('create.runStrategy')} allowDeselect={false} data={strategies.map((value) => ({ value, label: t(`create.run${value}`) }))} value={form.runStrategy} onChange={(value) => change({ runStrategy: (value ?? 'RerunOnFailure') as RunStrategy })} />
      <Select label={t('create.host')} allowDeselect={false} data={choices.hostOptions} value={form.host} onChange={(host) => change({ host: host ?? '' })} />
      <TextInput label={t('create.hostname')} description={t('create.hostnameHelp')} value={form.hostname} onChange={(event) => change({ hostname: event.currentTarget.value.trim() })} />
      <TextInput label={t('create.description')} value={form.description} onChange={(event) => change({ description: event.currentTarget.value })} />
      <TagsInput label={t('create.labels')} description={t('create.labelsHelp')} value={Object.entries(form.labels).map(([key, value]) => `${key}=${value}`)} onChange={(tags) => change({ labels: labelsFrom(tags) })} />
      <Switch label={t('create.hotplug')} checked={form.hotplug} onChange={(event) => change({ hotplug: event.currentTarget.checked })} mt="lg" />
    </div>
  );
}

function labelsFrom(tags: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    tags.map((tag) => {
      const [key = '', ...rest] = tag.split('=');
      return [key.trim(), rest.join('=').trim()];
    }),
  );
}

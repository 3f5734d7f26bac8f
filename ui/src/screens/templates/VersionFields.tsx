import { Accordion, Select, Text } from '@mantine/core';
import type { ApiError } from '@/api/errors';
import { t } from '@/i18n';
import { SizeInput } from '@/parts/form/SizeInput';
import { Card } from '@/parts/Page';
import { AccessFields } from '@/screens/machines/create/AccessFields';
import { CloudInitFields } from '@/screens/machines/create/CloudInitFields';
import { DiskFields } from '@/screens/machines/create/DiskFields';
import type { ChoiceFieldsProps } from '@/screens/machines/create/fields';
import { disksFor, Section } from '@/screens/machines/create/FormPage';
import { FirmwareFields, RunningFields } from '@/screens/machines/create/FurtherFields';
import { NicFields } from '@/screens/machines/create/NicFields';
import { SizeFields } from '@/screens/machines/create/SizeFields';

/** What the machines of a template have: the same fields as for a machine, but nothing must be filled in. */
export function VersionFields({ form, change, choices, error }: ChoiceFieldsProps & { error: ApiError | null }) {
  const root = form.disks[0];
  const image = root && (root.source === 'image' || root.source === 'cdrom') ? choices.imageById.get(root.image) : undefined;
  const rootDisk = form.disks.find((disk) => disk.source === 'image' || disk.source === 'blank');
  const setRootSize = (size: string) => change({ disks: form.disks.map((disk) => (disk === rootDisk ? { ...disk, size } : disk)) });
  return (
    <>
      <Card>
        <Select label={t('create.image')} description={t('templates.imageHelp')} placeholder={t('templates.imageOpen')} data={choices.imageOptions} searchable clearable value={image?.id ?? null} onChange={(id) => change({ disks: disksFor(id ? choices.imageById.get(id) : undefined, form) })} />
      </Card>
      <Card title={t('create.size')}>
        <SizeFields form={form} change={change} error={error}>
          {rootDisk && <SizeInput label={t('create.disk')} value={rootDisk.size} onChange={setRootSize} />}
        </SizeFields>
      </Card>
      <Card title={t('create.access')}>
        <Text size="sm" c="dimmed" mb="sm">{t('templates.accessHelp')}</Text>
        <AccessFields form={form} change={change} choices={choices} />
      </Card>
      <Accordion multiple variant="separated" radius="lg" chevronPosition="left">
        <Section id="disks" title={t('create.disks')}><DiskFields form={form} change={change} choices={choices} /></Section>
        <Section id="nics" title={t('create.networks')}><NicFields form={form} change={change} choices={choices} /></Section>
        <Section id="cloudInit" title={t('create.cloudInit')}><CloudInitFields form={form} change={change} /></Section>
        <Section id="firmware" title={t('create.firmware')}><FirmwareFields form={form} change={change} /></Section>
        <Section id="running" title={t('create.behaviour')}><RunningFields form={form} change={change} choices={choices} /></Section>
      </Accordion>
    </>
  );
}

import { Accordion, Alert, Button, Select, Switch, Text } from '@mantine/core';
import { IconPhoto } from '@tabler/icons-react';
import { Link, useNavigate } from '@tanstack/react-router';
import { useMemo, useState, type ReactNode } from 'react';
import { binaryQuantity, formatBytes, parseQuantity } from '@/api/quantity';
import { useQueryState } from '@/app/address';
import { useDefaultNamespace, useNamespaceNames } from '@/app/namespace';
import { language, t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { Preview } from '@/parts/form/Preview';
import { SizeInput } from '@/parts/form/SizeInput';
import { allPlaced, refusalOf, useSubmit } from '@/parts/form/useSubmit';
import { Card } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { Loading } from '@/parts/States';
import { AccessFields } from './AccessFields';
import { build } from './build';
import { CloudInitFields } from './CloudInitFields';
import { problemOf } from './cloudInit';
import classes from './Create.module.css';
import { DiskFields } from './DiskFields';
import { FirmwareFields, RunningFields } from './FurtherFields';
import type { MachineForm } from './form';
import { emptyForm, newDisk } from './form';
import { NicFields } from './NicFields';
import { SizeFields } from './SizeFields';
import { commandOf, submit } from './submit';
import type { ImageChoice } from './useChoices';
import { useChoices } from './useChoices';

const gib = 2 ** 30;
const domain = 'spec.template.spec.domain';
const placed = ['metadata.name', `${domain}.cpu`, `${domain}.memory`, `${domain}.resources`];

/** The short way to a machine: five questions, and the rest folded away. */
export function FormPage() {
  const [params] = useQueryState();
  const namespaces = useNamespaceNames();
  const defaultNamespace = useDefaultNamespace();
  const [draft, setDraft] = useState<MachineForm>(() => ({ ...emptyForm(''), ...(params['image'] && { disks: [newDisk('image', { image: params['image'] })] }) }));
  // Until they are chosen: the default namespace, and the image if there is only one. Both may be known only a moment later.
  const namespace = draft.namespace || defaultNamespace;
  const choices = useChoices(namespace);
  const form = useMemo(() => withOnlyImage({ ...draft, namespace }, choices.images), [draft, namespace, choices.images]);
  const navigate = useNavigate();
  const change = (changes: Partial<MachineForm>) => setDraft((before) => ({ ...before, ...changes }));

  const built = useMemo(() => build(form, choices.classOf), [form, choices.classOf]);
  const { busy, error, submit: send } = useSubmit(async () => {
    await submit(built);
    void navigate({ to: `/machines/${form.namespace}/${form.name}${form.start ? '/console' : ''}` });
  });

  const root = form.disks[0];
  const bootImage = root && (root.source === 'image' || root.source === 'cdrom') ? choices.imageById.get(root.image) : undefined;
  const chooseImage = (id: string | null) => change({ disks: disksFor(id ? choices.imageById.get(id) : undefined, form) });

  // Which of the two it will be is known only now: a form must not go away under whoever types into it.
  if (choices.imageSnapshot.phase === 'loading') return <Loading />;
  if (choices.imageSnapshot.phase === 'ready' && choices.images.length === 0 && root?.source === 'image' && form.name === '') {
    return (
      <Blank icon={IconPhoto} title={t('create.noImages')} text={t('create.noImagesHelp')}>
        <Button component={Link} to="/images/new">{t('create.addImage')}</Button>
        <Button variant="subtle" onClick={() => change({ disks: [newDisk('blank')] })}>{t('create.sourceBlank')}</Button>
      </Blank>
    );
  }

  const rootDisk = form.disks.find((disk) => disk.source === 'image' || disk.source === 'blank');
  const tooSmall = bootImage && rootDisk?.source === 'image' && (parseQuantity(rootDisk.size) ?? 0) < bootImage.virtualSize;
  const incomplete = !isValidName(form.name) || form.memory === '' || tooSmall || form.disks.some((disk) => disk.source === 'image' && !disk.image) || problemOf(form.userData) !== undefined;
  const setRootSize = (size: string) => change({ disks: form.disks.map((disk) => (disk === rootDisk ? { ...disk, size } : disk)) });

  return (
    <form
      className={classes.layout}
      onSubmit={(event) => {
        event.preventDefault();
        if (!incomplete && !busy) void send();
      }}
    >
      {error && !allPlaced(error, ...placed) && <Problem error={error} />}
      <Card>
        <div className={classes.columns}>
          <NameInput label={t('create.name')} value={form.name} onChange={(name) => change({ name })} error={refusalOf(error, 'metadata.name')} autoFocus />
          <Select label={t('common.namespace')} data={namespaces.includes(form.namespace) ? namespaces : [form.namespace, ...namespaces]} allowDeselect={false} searchable value={form.namespace} onChange={(namespace) => change({ namespace: namespace ?? 'default' })} />
        </div>
        <Select mt="md" label={t('create.image')} description={t('create.imageHelp')} data={choices.imageOptions} searchable allowDeselect={false} required={root?.source === 'image'} value={bootImage?.id ?? null} onChange={chooseImage} />
        {bootImage?.cd && <Alert mt="sm" color="croft">{t('create.imageIsCd')}</Alert>}
      </Card>
      <Card title={t('create.size')}>
        <SizeFields form={form} change={change} error={error}>
          {rootDisk && (
            <SizeInput label={t('create.disk')} value={rootDisk.size} onChange={setRootSize} error={tooSmall ? t('create.diskTooSmall', { size: formatBytes(bootImage.virtualSize, language()) }) : undefined} />
          )}
        </SizeFields>
      </Card>
      <Card title={t('create.access')}>
        <Text size="sm" c="dimmed" mb="sm">{t('create.accessHelp')}</Text>
        <AccessFields form={form} change={change} choices={choices} />
      </Card>
      <Card title={t('create.network')}>
        <Select aria-label={t('create.network')} data={choices.networkOptions} allowDeselect={false} value={form.nics[0]?.network ?? ''} onChange={(network) => change({ nics: form.nics.map((nic, index) => (index === 0 ? { ...nic, network: network ?? '' } : nic)) })} />
      </Card>
      <Accordion multiple variant="separated" radius="lg" chevronPosition="left">
        <Section id="disks" title={t('create.disks')}><DiskFields form={form} change={change} choices={choices} /></Section>
        <Section id="nics" title={t('create.networks')}><NicFields form={form} change={change} choices={choices} /></Section>
        <Section id="cloudInit" title={t('create.cloudInit')}><CloudInitFields form={form} change={change} /></Section>
        <Section id="firmware" title={t('create.firmware')}><FirmwareFields form={form} change={change} /></Section>
        <Section id="running" title={t('create.behaviour')}><RunningFields form={form} change={change} choices={choices} /></Section>
      </Accordion>
      <Preview objects={built.secret ? [built.secret, built.machine] : [built.machine]} command={commandOf(built, bootImage?.id ?? '', rootDisk?.size ?? '')} />
      <div className={classes.footer}>
        <Switch label={t('create.startAfter')} checked={form.start} onChange={(event) => change({ start: event.currentTarget.checked })} />
        <Button variant="default" component={Link} to="/machines">{t('common.cancel')}</Button>
        <Button type="submit" disabled={incomplete} loading={busy}>{form.start ? t('create.submitStart') : t('create.submit')}</Button>
      </div>
    </form>
  );
}

export function Section({ id, title, children }: { id: string; title: string; children: ReactNode }) {
  return (
    <Accordion.Item value={id} bg="var(--croft-surface)" style={{ border: '1px solid var(--croft-line)' }}>
      <Accordion.Control>{title}</Accordion.Control>
      <Accordion.Panel>{children}</Accordion.Panel>
    </Accordion.Item>
  );
}

function withOnlyImage(form: MachineForm, images: readonly ImageChoice[]): MachineForm {
  const [only, another] = images;
  const [root] = form.disks;
  if (!only?.ready || another || root?.source !== 'image' || root.image) return form;
  return { ...form, disks: disksFor(only, form) };
}

/** An installation CD goes into a drive, beside an empty disk; any other image is the first disk. */
export function disksFor(image: ImageChoice | undefined, form: MachineForm) {
  const others = form.disks.slice(form.disks[0]?.source === 'cdrom' ? 2 : 1);
  if (!image) return [newDisk('image'), ...others];
  if (image.cd) return [newDisk('cdrom', { image: image.id, size: sizeFor(image.virtualSize) }), newDisk('blank', { size: '20Gi' }), ...others];
  const size = Math.max(10 * gib, image.virtualSize);
  return [newDisk('image', { image: image.id, size: sizeFor(size) }), ...others];
}

function sizeFor(bytes: number): string {
  return binaryQuantity(Math.max(1, Math.ceil(bytes / gib)) * gib);
}

import { Button, Radio, Select, Stack, Switch, TagsInput, TextInput } from '@mantine/core';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { createObject } from '@/api/client';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { Preview } from '@/parts/form/Preview';
import { allPlaced, refusalOf, useSubmit } from '@/parts/form/useSubmit';
import { Card, PageHead } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import classes from '@/screens/machines/create/Create.module.css';
import type { ClassForm } from './storageClass';
import { classObject, emptyClass, provisioners } from './storageClass';

const placed = ['metadata.name', 'parameters', 'spec.parameters', 'provisioner'];

export function Screen() {
  const [form, setForm] = useState<ClassForm>(emptyClass);
  const change = (changes: Partial<ClassForm>) => setForm((before) => ({ ...before, ...changes }));
  const navigate = useNavigate();
  const object = classObject(form);
  const { busy, error, submit } = useSubmit(async () => {
    const made = await createObject(kinds.storageClasses, object);
    void navigate({ to: objectAddress('/storage-classes', made) });
  });
  const incomplete = !isValidName(form.name);
  return (
    <>
      <PageHead title={t('storageClasses.create')} parent={{ title: t('storageClasses.title'), to: '/storage-classes' }} />
      <form
        className={classes.layout}
        onSubmit={(event) => {
          event.preventDefault();
          if (!incomplete && !busy) void submit();
        }}
      >
        {error && !allPlaced(error, ...placed) && <Problem error={error} />}
        <Card>
          <div className={classes.columns}>
            <NameInput label={t('common.name')} value={form.name} onChange={(name) => change({ name })} error={refusalOf(error, 'metadata.name')} autoFocus />
            <TextInput label={t('common.description')} value={form.description} onChange={(event) => change({ description: event.currentTarget.value })} />
          </div>
        </Card>
        <Card>
          <Stack>
            <Radio.Group label={t('storageClasses.reclaim')} value={form.reclaimPolicy} onChange={(value) => change({ reclaimPolicy: value as ClassForm['reclaimPolicy'] })}>
              <Stack gap={6} mt={6}>
                <Radio value="Delete" label={t('storageClasses.deleteLong')} />
                <Radio value="Retain" label={t('storageClasses.retainLong')} />
              </Stack>
            </Radio.Group>
            <Radio.Group label={t('storageClasses.binding')} value={form.volumeBindingMode} onChange={(value) => change({ volumeBindingMode: value as ClassForm['volumeBindingMode'] })}>
              <Stack gap={6} mt={6}>
                <Radio value="Immediate" label={t('storageClasses.immediateLong')} />
                <Radio value="WaitForFirstConsumer" label={t('storageClasses.waitingLong')} />
              </Stack>
            </Radio.Group>
            <Switch label={t('storageClasses.expansion')} checked={form.allowVolumeExpansion} onChange={(event) => change({ allowVolumeExpansion: event.currentTarget.checked })} />
            <TagsInput label={t('storageClasses.tags')} description={t('storageClasses.tagsHelp')} value={form.diskTags} onChange={(diskTags) => change({ diskTags })} error={refusalOf(error, 'parameters', 'spec.parameters')} />
            <Select label={t('storageClasses.provisioner')} description={t('storageClasses.provisionerHelp')} allowDeselect={false} data={[...provisioners]} value={form.provisioner} onChange={(provisioner) => change({ provisioner: provisioner ?? provisioners[0] })} error={refusalOf(error, 'provisioner')} />
          </Stack>
        </Card>
        <Preview objects={[object]} command={`kubectl apply -f ${form.name || 'class'}.yaml`} />
        <div className={classes.footer}>
          <Button variant="default" component={Link} to="/storage-classes">{t('common.cancel')}</Button>
          <Button type="submit" disabled={incomplete} loading={busy}>{t('common.create')}</Button>
        </div>
      </form>
    </>
  );
}

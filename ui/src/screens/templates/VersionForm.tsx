import { Button, Switch, TextInput } from '@mantine/core';
import { Link, useNavigate } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import type { VirtualMachineTemplate } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { randomSuffix } from '@/parts/form/names';
import { Preview } from '@/parts/form/Preview';
import { useSubmit } from '@/parts/form/useSubmit';
import { Card } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { problemOf } from '@/screens/machines/create/cloudInit';
import classes from '@/screens/machines/create/Create.module.css';
import type { MachineForm } from '@/screens/machines/create/form';
import { emptyForm } from '@/screens/machines/create/form';
import { useChoices } from '@/screens/machines/create/useChoices';
import { createVersion, setDefault } from './submit';
import { versionFromForm } from './template';
import { VersionFields } from './VersionFields';

export function VersionForm({ template }: { template: VirtualMachineTemplate }) {
  const { name, namespace = 'default' } = template.metadata;
  const can = useCan(namespace);
  const mayChoose = can('update', kinds.templates, name);
  const [description, setDescription] = useState('');
  const [asDefault, setAsDefault] = useState(true);
  const [form, setForm] = useState<MachineForm>(() => emptyForm(namespace));
  const [suffix] = useState(() => randomSuffix());
  const choices = useChoices(namespace);
  const navigate = useNavigate();
  const { classOf, keyPairs } = choices;
  const built = useMemo(() => versionFromForm({ template: name, namespace, description }, form, classOf, keyPairs, suffix), [name, namespace, description, form, classOf, keyPairs, suffix]);
  const address = objectAddress('/templates', template);
  const { busy, error, submit } = useSubmit(async () => {
    const made = await createVersion(built);
    if (asDefault && mayChoose) await setDefault(template, made);
    void navigate({ to: address });
  });
  const incomplete = form.memory === '' || problemOf(form.userData) !== undefined;
  return (
    <form
      className={classes.layout}
      onSubmit={(event) => {
        event.preventDefault();
        if (!incomplete && !busy) void submit();
      }}
    >
      {error && <Problem error={error} />}
      <Card><TextInput label={t('common.description')} description={t('templates.versionDescription')} value={description} onChange={(event) => setDescription(event.currentTarget.value)} autoFocus /></Card>
      <VersionFields form={form} change={(changes) => setForm((before) => ({ ...before, ...changes }))} choices={choices} error={error} />
      <Preview objects={[built.version]} command={`kubectl apply -f ${name}.yaml`} />
      <div className={classes.footer}>
        {mayChoose && <Switch label={t('templates.makeDefault')} checked={asDefault} onChange={(event) => setAsDefault(event.currentTarget.checked)} />}
        <Button variant="default" component={Link} to={address}>{t('common.cancel')}</Button>
        <Button type="submit" disabled={incomplete} loading={busy}>{t('common.create')}</Button>
      </div>
    </form>
  );
}

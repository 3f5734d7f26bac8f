import { Button, TextInput } from '@mantine/core';
import { Link, useNavigate } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName, randomSuffix } from '@/parts/form/names';
import { NamespaceSelect } from '@/parts/form/NamespaceSelect';
import { Preview } from '@/parts/form/Preview';
import { allPlaced, refusalOf, useSubmit } from '@/parts/form/useSubmit';
import { Card, PageHead } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { problemOf } from '@/screens/machines/create/cloudInit';
import classes from '@/screens/machines/create/Create.module.css';
import type { MachineForm } from '@/screens/machines/create/form';
import { emptyForm } from '@/screens/machines/create/form';
import { useChoices } from '@/screens/machines/create/useChoices';
import { createTemplate } from './submit';
import { templateObject, versionFromForm } from './template';
import { VersionFields } from './VersionFields';

export function Screen() {
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState(useDefaultNamespace());
  const [description, setDescription] = useState('');
  const [form, setForm] = useState<MachineForm>(() => emptyForm(namespace));
  const [suffix] = useState(() => randomSuffix());
  const choices = useChoices(namespace);
  const navigate = useNavigate();
  const { classOf, keyPairs } = choices;
  const template = templateObject(name, namespace, description);
  const built = useMemo(() => versionFromForm({ template: name, namespace, description: '' }, form, classOf, keyPairs, suffix), [name, namespace, form, classOf, keyPairs, suffix]);
  const { busy, error, submit } = useSubmit(async () => {
    await createTemplate(template, built);
    void navigate({ to: `/templates/${namespace}/${name}` });
  });
  const incomplete = !isValidName(name) || form.memory === '' || problemOf(form.userData) !== undefined;
  return (
    <>
      <PageHead title={t('templates.create')} parent={{ title: t('templates.title'), to: '/templates' }} />
      <form
        className={classes.layout}
        onSubmit={(event) => {
          event.preventDefault();
          if (!incomplete && !busy) void submit();
        }}
      >
        {error && !allPlaced(error, 'metadata.name') && <Problem error={error} />}
        <Card>
          <div className={classes.columns}>
            <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />
            <NamespaceSelect value={namespace} onChange={setNamespace} />
            <TextInput label={t('common.description')} value={description} onChange={(event) => setDescription(event.currentTarget.value)} />
          </div>
        </Card>
        <VersionFields form={form} change={(changes) => setForm((before) => ({ ...before, ...changes }))} choices={choices} error={error} />
        <Preview objects={[template, built.version]} command={`kubectl apply -f ${name || 'template'}.yaml`} />
        <div className={classes.footer}>
          <Button variant="default" component={Link} to="/templates">{t('common.cancel')}</Button>
          <Button type="submit" disabled={incomplete} loading={busy}>{t('common.create')}</Button>
        </div>
      </form>
    </>
  );
}

import { Button, Input, SegmentedControl } from '@mantine/core';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { createObject } from '@/api/client';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { NamespaceSelect } from '@/parts/form/NamespaceSelect';
import { Preview } from '@/parts/form/Preview';
import { allPlaced, refusalOf, useSubmit } from '@/parts/form/useSubmit';
import { Card, PageHead } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { LazyEditor } from '@/parts/yaml/lazyEditor';
import { problemOf } from '@/screens/machines/create/cloudInit';
import formClasses from '@/screens/machines/create/Create.module.css';
import classes from './CloudConfig.module.css';
import type { ConfigType } from './cloudConfig';
import { configObject, starters } from './cloudConfig';

const types: readonly ConfigType[] = ['user', 'network'];

export function Screen() {
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState(useDefaultNamespace());
  const [type, setType] = useState<ConfigType>('user');
  const [text, setText] = useState(starters.user);
  const navigate = useNavigate();
  const object = configObject(name, namespace, type, text);
  const { busy, error, submit } = useSubmit(async () => {
    const made = await createObject(kinds.configMaps, object);
    void navigate({ to: objectAddress('/cloud-configs', made) });
  });
  const problem = type === 'user' ? problemOf(text) : undefined;
  const incomplete = !isValidName(name) || text.trim() === '' || problem !== undefined;
  const choose = (next: ConfigType) => {
    // What somebody wrote is not replaced by an example.
    if (text === starters[type] || text.trim() === '') setText(starters[next]);
    setType(next);
  };
  return (
    <>
      <PageHead title={t('cloudConfigs.create')} parent={{ title: t('cloudConfigs.title'), to: '/cloud-configs' }} />
      <form
        className={formClasses.layout}
        onSubmit={(event) => {
          event.preventDefault();
          if (!incomplete && !busy) void submit();
        }}
      >
        {error && !allPlaced(error, 'metadata.name') && <Problem error={error} />}
        <Card>
          <div className={formClasses.columns}>
            <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />
            <NamespaceSelect value={namespace} onChange={setNamespace} />
          </div>
          <Input.Wrapper label={t('common.type')} description={t(`cloudConfigs.${type}Help`)} mt="md">
            <div><SegmentedControl mt={6} value={type} onChange={(value) => choose(value as ConfigType)} data={types.map((value) => ({ value, label: t(`cloudConfigs.${value}`) }))} aria-label={t('common.type')} /></div>
          </Input.Wrapper>
          <Input.Wrapper label={t('cloudConfigs.content')} error={problem} mt="md">
            <div className={classes.editor}><LazyEditor label={t('cloudConfigs.content')} value={text} onChange={setText} /></div>
          </Input.Wrapper>
        </Card>
        <Preview objects={[object]} command={`kubectl apply -f ${name || 'cloud-config'}.yaml`} />
        <div className={formClasses.footer}>
          <Button variant="default" component={Link} to="/cloud-configs">{t('common.cancel')}</Button>
          <Button type="submit" disabled={incomplete} loading={busy}>{t('common.create')}</Button>
        </div>
      </form>
    </>
  );
}

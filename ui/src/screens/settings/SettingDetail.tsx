import { Alert, Button, Code, Group, Stack, Tabs, Text } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import { useObject } from '@/api/collections';
import type { Setting } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { useAddress } from '@/app/address';
import { t } from '@/i18n';
import { Conditions } from '@/parts/Conditions';
import { ask } from '@/parts/confirm';
import { Preview } from '@/parts/form/Preview';
import { allPlaced, refusalOf, useSubmit } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { Card, PageHead } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { ObjectStates } from '@/parts/States';
import { StatusBadge } from '@/parts/StatusBadge';
import { Notice } from '@/parts/Notice';
import { YamlTab } from '@/parts/yaml/YamlTab';
import { infoOf } from './catalog';
import classes from './Settings.module.css';
import { troubleOf } from './state';
import { helpOf } from './texts';
import { compact, effectiveValue, isChanged, pretty, problemOf } from './value';
import { ValueEditor } from './ValueEditor';

export function Screen() {
  const { name = '', tab } = useAddress();
  const { snapshot } = useObject(kinds.settings, undefined, name);
  const navigate = useNavigate();
  return (
    <ObjectStates snapshot={snapshot} name={name}>
      {(setting) => (
        <>
          <PageHead title={name} parent={{ title: t('settings.title'), to: '/settings' }} meta={<StatusBadge tone={isChanged(setting) ? 'ok' : 'idle'} label={t(isChanged(setting) ? 'settings.changed' : 'settings.default')} />} />
          <Tabs value={tab === 'yaml' ? 'yaml' : 'value'} onChange={(next) => void navigate({ to: next === 'yaml' ? `/settings/${name}/yaml` : `/settings/${name}` })} mb="md">
            <Tabs.List>
              <Tabs.Tab value="value">{t('common.value')}</Tabs.Tab>
              <Tabs.Tab value="yaml">{t('common.yaml')}</Tabs.Tab>
            </Tabs.List>
          </Tabs>
          {/* Somebody else's change starts the form over, unless something was typed: then it is told. */}
          {tab === 'yaml' ? <YamlTab kind={kinds.settings} object={setting} /> : <Editor key={name} setting={setting} />}
        </>
      )}
    </ObjectStates>
  );
}

const placed = ['value'];

function Editor({ setting }: { setting: Setting }) {
  const { name } = setting.metadata;
  const info = infoOf(name);
  const mayUpdate = useMay('update', kinds.settings) && !info.readOnly;
  const [draft, setDraft] = useState<{ value: string; base: string } | null>(null);
  const current = pretty(effectiveValue(setting));
  const value = draft?.value ?? current;
  const changed = draft !== null && compact(draft.value) !== compact(current);
  const wrong = problemOf(info.shape, value);
  const patch = { value: compact(value) };

  const { busy, error, submit } = useSubmit(async () => {
    await mergePatch(kinds.settings, setting, patch);
    setDraft(null);
    say(t('common.saved'));
  });
  const reset = () =>
    ask({
      title: t('settings.resetTitle', { name }),
      body: <Stack gap="xs"><Text>{t('settings.resetHelp')}</Text><Code block className={classes.default}>{pretty(setting.default ?? '') || '–'}</Code></Stack>,
      confirm: t('settings.reset'),
      run: async () => {
        await mergePatch(kinds.settings, setting, { value: '' });
        setDraft(null);
        say(t('common.saved'));
      },
    });

  const trouble = troubleOf(setting);
  return (
    <form
      className={classes.layout}
      onSubmit={(event) => {
        event.preventDefault();
        if (changed && !wrong && !busy) void submit();
      }}
    >
      {helpOf(name) && <Text>{helpOf(name)}</Text>}
      {info.effect === 'stored' && <Notice title={t('settings.stored')}>{t('settings.storedHelp')}</Notice>}
      {info.effect === 'clients' && <Text size="sm" c="dimmed">{t('settings.clientsHelp')}</Text>}
      {trouble && info.effect !== 'stored' && <Alert color="red" title={t('settings.trouble')}>{trouble}</Alert>}
      {draft && draft.base !== current && (
        <Notice title={t('common.changedMeanwhile')}>
          <Button size="xs" variant="default" onClick={() => setDraft(null)}>{t('common.takeTheirs')}</Button>
        </Notice>
      )}
      <Card>
        <Stack>
          <ValueEditor shape={info.shape} value={value} disabled={!mayUpdate} error={wrong ? t('settings.badJson', { message: wrong }) : refusalOf(error, 'value')} onChange={(next) => setDraft({ value: next, base: draft?.base ?? current })} />
          {error && !allPlaced(error, ...placed) && <Problem error={error} />}
          {changed && <Preview objects={[{ apiVersion: 'harvesterhci.io/v1beta1', kind: 'Setting', metadata: { name }, ...patch }]} command={`kubectl patch settings.harvesterhci.io ${name} --type merge -p '${JSON.stringify(patch).replaceAll("'", "'\\''")}'`} />}
          {info.readOnly && <Text size="sm" c="dimmed">{t('settings.readOnly')}</Text>}
          {mayUpdate && (
            <Group justify="space-between">
              <Button variant="default" disabled={!isChanged(setting)} onClick={reset}>{t('settings.reset')}</Button>
              <Group>
                {draft && <Button variant="subtle" color="gray" onClick={() => setDraft(null)}>{t('common.cancel')}</Button>}
                <Button type="submit" disabled={!changed || wrong !== null} loading={busy}>{t('common.save')}</Button>
              </Group>
            </Group>
          )}
        </Stack>
      </Card>
      <Card title={t('settings.defaultValue')}><Code block className={classes.default}>{pretty(setting.default ?? '') || '–'}</Code></Card>
      {(setting.status?.conditions?.length ?? 0) > 0 && <Card title={t('common.conditions')}><Conditions conditions={setting.status?.conditions ?? []} /></Card>}
    </form>
  );
}

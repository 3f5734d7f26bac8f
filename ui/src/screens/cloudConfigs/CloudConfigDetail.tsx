import { Button, Group, Input, Stack } from '@mantine/core';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import { kinds } from '@/api/kinds';
import type { ConfigMap } from '@/api/storage';
import { t } from '@/i18n';
import { useSubmit } from '@/parts/form/useSubmit';
import { KindDetail } from '@/parts/kind/KindDetail';
import { useMayDo } from '@/parts/kind/rights';
import { say } from '@/parts/notify';
import { Card } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { LazyEditor } from '@/parts/yaml/lazyEditor';
import { problemOf } from '@/screens/machines/create/cloudInit';
import classes from './CloudConfig.module.css';
import { dataKey, textOf, typeOf } from './cloudConfig';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.configMaps}
      area="/cloud-configs"
      parent={t('cloudConfigs.title')}
      meta={(map) => <span>{t(`cloudConfigs.${typeOf(map)}`)}</span>}
      facts={(map) => [[t('common.type'), t(`cloudConfigs.${typeOf(map)}`)], [t('cloudConfigs.lines'), textOf(map).split('\n').length]]}
      body={(map) => <ConfigEditor key={map.metadata.resourceVersion} map={map} />}
      deleteHelp={t('cloudConfigs.deleteHelp')}
    />
  );
}

function ConfigEditor({ map }: { map: ConfigMap }) {
  const mayEdit = useMayDo('update', kinds.configMaps, map);
  const stored = textOf(map);
  const [text, setText] = useState(stored);
  const problem = problemOf(text);
  const { busy, error, submit } = useSubmit(async () => {
    await mergePatch(kinds.configMaps, map, { data: { [dataKey]: text } });
    say(t('common.saved'));
  });
  const label = t(`cloudConfigs.${typeOf(map)}`);
  return (
    <Card title={label}>
      <Stack>
        {error && <Problem error={error} />}
        <Input.Wrapper error={problem}>
          <div className={classes.editor}><LazyEditor label={label} value={text} {...(mayEdit && { onChange: setText })} /></div>
        </Input.Wrapper>
        {mayEdit && (
          <Group justify="flex-end">
            <Button variant="default" disabled={text === stored} onClick={() => setText(stored)}>{t('common.cancel')}</Button>
            <Button disabled={text === stored || problem !== undefined} loading={busy} onClick={() => void submit()}>{t('common.save')}</Button>
          </Group>
        )}
      </Stack>
    </Card>
  );
}

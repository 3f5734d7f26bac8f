import { Button, Group, Input, Stack, Text } from '@mantine/core';
import { IconCloudCog } from '@tabler/icons-react';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import { useObject } from '@/api/collections';
import type { Secret } from '@/api/core';
import { asApiError } from '@/api/errors';
import type { ApiError } from '@/api/errors';
import { kinds } from '@/api/kinds';
import type { CloudInitSource } from '@/api/kubevirt';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { say } from '@/parts/notify';
import { Card } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { ObjectStates } from '@/parts/States';
import { LazyEditor } from '@/parts/yaml/lazyEditor';
import { problemOf } from '../create/cloudInit';
import createClasses from '../create/Create.module.css';
import type { TabProps } from './MachineDetail';

export function Tab({ row: { machine } }: TabProps) {
  const { namespace = '' } = machine.metadata;
  const source = (machine.spec.template.spec.volumes ?? []).map((volume) => volume.cloudInitNoCloud ?? volume.cloudInitConfigDrive).find(Boolean);
  if (!source) return <Blank icon={IconCloudCog} title={t('detail.noCloudInit')} text={t('detail.noCloudInitHelp')} />;
  if (source.secretRef) return <FromSecret namespace={namespace} name={source.secretRef.name} />;
  return <Inline source={source} />;
}

function Inline({ source }: { source: CloudInitSource }) {
  const text = source.userData ?? decode(source.userDataBase64);
  return <Card title={t('create.userData')}><div className={createClasses.editor}><LazyEditor label={t('create.userData')} value={text} /></div></Card>;
}

function FromSecret({ namespace, name }: { namespace: string; name: string }) {
  const { snapshot } = useObject(kinds.secrets, namespace, name);
  return <ObjectStates snapshot={snapshot} name={name}>{(secret) => <Editor key={secret.metadata.resourceVersion} secret={secret} />}</ObjectStates>;
}

function Editor({ secret }: { secret: Secret }) {
  const can = useCan(secret.metadata.namespace ?? '');
  const mayEdit = can('update', kinds.secrets, secret.metadata.name);
  const stored = { userdata: decode(secret.data?.['userdata']), networkdata: decode(secret.data?.['networkdata']) };
  const [texts, setTexts] = useState(stored);
  const [error, setError] = useState<ApiError | null>(null);
  const changed = texts.userdata !== stored.userdata || texts.networkdata !== stored.networkdata;
  const problem = problemOf(texts.userdata);
  const save = () =>
    mergePatch(kinds.secrets, secret, { data: { userdata: encode(texts.userdata), networkdata: texts.networkdata ? encode(texts.networkdata) : null } }).then(
      () => say(t('common.saved')),
      (caught: unknown) => setError(asApiError(caught)),
    );
  return (
    <Card>
      <Stack>
        <Text size="sm" c="dimmed">{t('detail.cloudInitNote')} {t('detail.inSecret', { name: secret.metadata.name })}.</Text>
        {error && <Problem error={error} />}
        <Input.Wrapper label={t('create.userData')} error={problem}>
          <div className={createClasses.editor}><LazyEditor label={t('create.userData')} value={texts.userdata} {...(mayEdit && { onChange: (userdata: string) => setTexts((before) => ({ ...before, userdata })) })} /></div>
        </Input.Wrapper>
        <Input.Wrapper label={t('create.networkData')}>
          <div className={createClasses.editor}><LazyEditor label={t('create.networkData')} value={texts.networkdata} {...(mayEdit && { onChange: (networkdata: string) => setTexts((before) => ({ ...before, networkdata })) })} /></div>
        </Input.Wrapper>
        {mayEdit && (
          <Group justify="flex-end">
            <Button variant="default" disabled={!changed} onClick={() => setTexts(stored)}>{t('common.cancel')}</Button>
            <Button disabled={!changed || problem !== undefined} onClick={() => void save()}>{t('common.save')}</Button>
          </Group>
        )}
      </Stack>
    </Card>
  );
}

/** Base64 of UTF-8, which the browser's own functions do not do. */
function decode(text: string | undefined): string {
  if (!text) return '';
  return new TextDecoder().decode(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)));
}

function encode(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

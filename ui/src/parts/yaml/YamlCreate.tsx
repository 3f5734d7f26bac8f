import { Alert, Button, Group } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { createObject } from '@/api/client';
import type { Kind } from '@/api/kinds';
import { kindId } from '@/api/kinds';
import { schemaOf } from '@/api/openapi';
import type { KubeObject } from '@/api/types';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { useSubmit } from '../form/useSubmit';
import { Problem } from '../Problem';
import { fromYaml } from './document';
import { LazyEditor } from './lazyEditor';
import classes from './YamlView.module.css';

interface YamlCreateProps<T extends KubeObject> {
  kind: Kind<T>;
  starter: string;
  /** Where to go when it is not wanted any more. */
  back: string;
  addressOf: (made: T) => string;
}

/** A new object in one's own words. */
export function YamlCreate<T extends KubeObject>({ kind, starter, back, addressOf }: YamlCreateProps<T>) {
  const namespace = useDefaultNamespace();
  const [text, setText] = useState(starter);
  const { data: schema } = useQuery({ queryKey: ['schema', kindId(kind)], queryFn: () => schemaOf(kind), staleTime: Infinity });
  const navigate = useNavigate();
  const parsed = fromYaml(text);
  const { busy, error, submit } = useSubmit(async () => {
    if (!('object' in parsed)) return;
    const wanted = parsed.object as T;
    const placed = kind.namespaced ? { ...wanted, metadata: { ...wanted.metadata, namespace: wanted.metadata.namespace ?? namespace } } : wanted;
    void navigate({ to: addressOf(await createObject(kind, placed)) });
  });
  return (
    <div className={classes.page}>
      {'problem' in parsed && <Alert color="red">{t('common.yamlBroken', { message: parsed.problem })}</Alert>}
      {error && <Problem error={error} />}
      <div className={classes.frame}><div className={classes.editor}><LazyEditor label={t('common.editYaml')} value={text} onChange={setText} schema={schema ?? null} /></div></div>
      <Group justify="flex-end">
        <Button variant="default" component={Link} to={back}>{t('common.cancel')}</Button>
        <Button disabled={'problem' in parsed} loading={busy} onClick={() => void submit()}>{t('common.create')}</Button>
      </Group>
    </div>
  );
}

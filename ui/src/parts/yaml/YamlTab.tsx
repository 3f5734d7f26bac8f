import { Alert, Button, CopyButton, SegmentedControl } from '@mantine/core';
import { IconCheck, IconCopy, IconDownload } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { replaceObject } from '@/api/client';
import type { ApiError } from '@/api/errors';
import { asApiError } from '@/api/errors';
import type { Kind } from '@/api/kinds';
import { kindId } from '@/api/kinds';
import { schemaOf } from '@/api/openapi';
import { useCan, useMay } from '@/api/permissions';
import type { KubeObject } from '@/api/types';
import { t } from '@/i18n';
import { say } from '../notify';
import { Problem } from '../Problem';
import { saveText } from '../saveFile';
import { fromYaml, toYaml } from './document';
import { LazyEditor } from './lazyEditor';
import classes from './YamlView.module.css';

/** An object as YAML: to read, and to change, with what will change shown before it is applied. */
export function YamlTab<T extends KubeObject>({ kind, object }: { kind: Kind<T>; object: T }) {
  const mayEdit = useMayEdit(kind, object);
  const [draft, setDraft] = useState<{ text: string; base: T } | null>(null);
  const [mode, setMode] = useState<'edit' | 'diff'>('edit');
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const { data: schema } = useQuery({ queryKey: ['schema', kindId(kind)], queryFn: () => schemaOf(kind), staleTime: Infinity });

  const live = useMemo(() => toYaml(object), [object]);
  const original = useMemo(() => toYaml(draft?.base ?? object), [draft?.base, object]);
  const text = draft?.text ?? live;
  const changed = draft !== null && draft.text !== original;
  const stale = draft !== null && draft.base.metadata.resourceVersion !== object.metadata.resourceVersion;
  const parsed = changed ? fromYaml(draft.text) : null;
  const broken = parsed && 'problem' in parsed ? parsed.problem : null;

  const apply = async () => {
    if (!parsed || !('object' in parsed)) return;
    setBusy(true);
    setError(null);
    try {
      await replaceObject(kind, parsed.object as T);
      setDraft(null);
      setMode('edit');
      say(t('common.applied'));
    } catch (caught) {
      setError(asApiError(caught));
    } finally {
      setBusy(false);
    }
  };

  return (
    <div className={classes.frame}>
      <div className={classes.bar}>
        <SegmentedControl size="xs" value={mode} onChange={(value) => setMode(value as 'edit' | 'diff')} data={[{ value: 'edit', label: t('common.yaml') }, { value: 'diff', label: t('common.reviewChanges'), disabled: !changed }]} />
        <CopyButton value={text}>
          {({ copied, copy }) => <Button size="xs" variant="default" leftSection={copied ? <IconCheck size={14} /> : <IconCopy size={14} />} onClick={copy}>{copied ? t('common.copied') : t('common.copy')}</Button>}
        </CopyButton>
        <Button size="xs" variant="default" leftSection={<IconDownload size={14} />} onClick={() => saveText(`${object.metadata.name}.yaml`, text, 'application/yaml')}>{t('common.download')}</Button>
        {changed && <Button size="xs" variant="default" onClick={() => { setDraft(null); setMode('edit'); setError(null); }}>{t('common.cancel')}</Button>}
        {mayEdit && mode === 'edit' && <Button size="xs" disabled={!changed || broken !== null} onClick={() => setMode('diff')}>{t('common.reviewChanges')}</Button>}
        {mode === 'diff' && <Button size="xs" loading={busy} disabled={!changed || broken !== null} onClick={() => void apply()}>{t('common.apply')}</Button>}
      </div>
      {broken && <div className={classes.note}><Alert color="red">{t('common.yamlBroken', { message: broken })}</Alert></div>}
      {error && <div className={classes.note}><Problem error={error} /></div>}
      {changed && stale && (
        <div className={classes.note}>
          <Alert color="yellow" title={t('common.changedMeanwhile')}>
            <Button size="xs" variant="default" onClick={() => { setDraft(null); setMode('edit'); }}>{t('common.takeTheirs')}</Button>
          </Alert>
        </div>
      )}
      <div className={classes.editor}>
        <LazyEditor
          key={mode}
          value={text}
          label={t('common.editYaml')}
          schema={schema ?? null}
          {...(mode === 'diff' && { original })}
          {...(mayEdit && mode === 'edit' && { onChange: (next: string) => setDraft((before) => (next === live && !before ? null : { text: next, base: before?.base ?? object })) })}
        />
      </div>
    </div>
  );
}

function useMayEdit(kind: Kind, object: KubeObject): boolean {
  const can = useCan(object.metadata.namespace ?? '');
  const may = useMay('update', kind);
  return kind.namespaced ? can('update', kind, object.metadata.name) : may;
}

import { Badge, Button, Group, TagsInput, Text } from '@mantine/core';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import type { Kind } from '@/api/kinds';
import type { KubeObject } from '@/api/types';
import { t } from '@/i18n';
import { openDialog } from './dialogs';
import { FormDialog } from './form/FormDialog';
import { refusalOf } from './form/useSubmit';
import { say } from './notify';
import { Card } from './Page';

/** The labels of an object, to see and to change. */
export function LabelsCard<T extends KubeObject>({ kind, object, mayEdit }: { kind: Kind<T>; object: T; mayEdit: boolean }) {
  const labels = Object.entries(object.metadata.labels ?? {});
  const edit = () => openDialog((close) => <LabelsDialog kind={kind} object={object} onClose={close} />);
  return (
    <Card title={t('common.labels')} actions={mayEdit && <Button size="compact-xs" variant="subtle" onClick={edit}>{t('common.edit')}</Button>}>
      <Group gap={6}>
        {labels.length === 0 && <Text c="dimmed" size="sm">{t('common.none')}</Text>}
        {labels.map(([key, value]) => <Badge key={key} variant="default" tt="none" fw={450} maw="100%">{key}{value && `=${value}`}</Badge>)}
      </Group>
    </Card>
  );
}

function LabelsDialog<T extends KubeObject>({ kind, object, onClose }: { kind: Kind<T>; object: T; onClose: () => void }) {
  const before = object.metadata.labels ?? {};
  const [tags, setTags] = useState(Object.entries(before).map(([key, value]) => `${key}=${value}`));
  const run = async () => {
    const after = Object.fromEntries(tags.map((tag) => [tag.split('=')[0]?.trim() ?? '', tag.slice(tag.indexOf('=') + 1 || tag.length).trim()]));
    const removed = Object.fromEntries(Object.keys(before).filter((key) => !(key in after)).map((key) => [key, null]));
    await mergePatch(kind, object, { metadata: { labels: { ...removed, ...after } } });
    say(t('common.saved'));
  };
  return (
    <FormDialog title={t('common.labels')} onClose={onClose} run={run} submitLabel={t('common.save')} placed={['metadata.labels']}>
      {(error) => <TagsInput label={t('common.labels')} description={t('create.labelsHelp')} value={tags} onChange={setTags} error={refusalOf(error, 'metadata.labels')} data-autofocus />}
    </FormDialog>
  );
}

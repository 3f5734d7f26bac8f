import { Stack, Text, Textarea, TextInput } from '@mantine/core';
import { useState } from 'react';
import { createObject } from '@/api/client';
import type { SupportBundle } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { randomSuffix } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';

export function NewBundle({ onClose }: { onClose: () => void }) {
  const [name] = useState(() => `bundle-${randomSuffix()}`);
  const [description, setDescription] = useState('');
  const [issue, setIssue] = useState('');
  const bundle: SupportBundle = {
    apiVersion: 'harvesterhci.io/v1beta1',
    kind: 'SupportBundle',
    metadata: { name, namespace: 'harvester-system' },
    spec: { description, ...(issue && { issueURL: issue }) },
  };
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  return (
    <FormDialog
      title={t('support.create')}
      onClose={onClose}
      submitLabel={t('common.create')}
      incomplete={description.trim() === ''}
      placed={['spec.description', 'spec.issueURL']}
      objects={[bundle]}
      command={`croft support-bundle --description ${quoted(description)}${issue && ` --issue-url ${quoted(issue)}`}`}
      run={async () => {
        await createObject(kinds.supportBundles, bundle);
        say(t('support.started'));
      }}
    >
      {(error) => (
        <Stack>
          <Text size="sm" c="dimmed">{t('support.createHelp')}</Text>
          <Textarea label={t('support.description')} description={t('support.descriptionHelp')} required autosize minRows={2} data-autofocus value={description} onChange={(event) => setDescription(event.currentTarget.value)} error={refusalOf(error, 'spec.description')} />
          <TextInput label={t('support.issue')} type="url" value={issue} onChange={(event) => setIssue(event.currentTarget.value)} error={refusalOf(error, 'spec.issueURL')} />
        </Stack>
      )}
    </FormDialog>
  );
}

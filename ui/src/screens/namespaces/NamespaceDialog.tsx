import { Stack, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { createObject, mergePatch } from '@/api/client';
import type { Namespace } from '@/api/core';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';

const annotation = 'field.cattle.io/description';

export function descriptionOf(namespace: Namespace): string {
  return namespace.metadata.annotations?.[annotation] ?? '';
}

export function NamespaceDialog({ namespace, onClose }: { namespace?: Namespace; onClose: () => void }) {
  const [name, setName] = useState(namespace?.metadata.name ?? '');
  const [description, setDescription] = useState(namespace ? descriptionOf(namespace) : '');
  const built: Namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name, ...(description && { annotations: { [annotation]: description } }) } };
  return (
    <FormDialog
      title={namespace ? t('namespaces.editTitle', { name }) : t('namespaces.create')}
      onClose={onClose}
      submitLabel={namespace ? t('common.save') : t('common.create')}
      incomplete={!isValidName(name)}
      placed={['metadata.name']}
      objects={[built]}
      command={namespace ? `kubectl annotate namespace ${name} --overwrite ${annotation}='${description.replaceAll("'", "'\\''")}'` : `kubectl create namespace ${name}`}
      run={async () => {
        await (namespace ? mergePatch(kinds.namespaces, namespace, { metadata: { annotations: { [annotation]: description || null } } }) : createObject(kinds.namespaces, built));
        say(t('common.saved'));
      }}
    >
      {(error) => (
        <Stack>
          {!namespace && <Text size="sm" c="dimmed">{t('namespaces.createHelp')}</Text>}
          {!namespace && <NameInput label={t('common.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />}
          <TextInput label={t('common.description')} value={description} onChange={(event) => setDescription(event.currentTarget.value)} data-autofocus={namespace ? true : undefined} />
        </Stack>
      )}
    </FormDialog>
  );
}

import { Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { steveAction } from '@/api/client';
import type { Namespace } from '@/api/core';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { SizeInput } from '@/parts/form/SizeInput';
import { say } from '@/parts/notify';

/** How much room the snapshots of a namespace may take together. */
export function SnapshotQuotaDialog({ namespace, current, onClose }: { namespace: Namespace; current: string; onClose: () => void }) {
  const [size, setSize] = useState(current);
  const { name } = namespace.metadata;
  const input = { totalSnapshotSizeQuota: size };
  return (
    <FormDialog
      title={t('namespaces.snapshotQuotaTitle', { name })}
      onClose={onClose}
      submitLabel={t('common.save')}
      command={`curl -X POST https://…/v1/harvester/namespaces/${name}?action=${size ? 'updateResourceQuota' : 'deleteResourceQuota'}${size && ` -d '${JSON.stringify(input)}'`}`}
      run={async () => {
        await (size ? steveAction(kinds.namespaces, namespace, 'updateResourceQuota', input) : steveAction(kinds.namespaces, namespace, 'deleteResourceQuota'));
        say(t('common.saved'));
      }}
    >
      <Stack>
        <Text size="sm" c="dimmed">{t('namespaces.snapshotQuotaHelp')}</Text>
        <SizeInput label={t('namespaces.snapshotQuota')} value={size} onChange={setSize} />
      </Stack>
    </FormDialog>
  );
}

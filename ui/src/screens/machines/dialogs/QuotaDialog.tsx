import { Button, Text } from '@mantine/core';
import { useState } from 'react';
import { steveAction } from '@/api/client';
import { kinds } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { SizeInput } from '@/parts/form/SizeInput';
import { say, sayError } from '@/parts/notify';

/** How much room the snapshots of a machine may take. */
export function QuotaDialog({ machine, onClose }: { machine: VirtualMachine; onClose: () => void }) {
  const { name } = machine.metadata;
  const [limit, setLimit] = useState('100Gi');

  const run = async () => {
    await steveAction(kinds.machines, machine, 'updateResourceQuota', { totalSnapshotSizeQuota: limit });
    say(t('common.saved'));
  };
  const remove = () =>
    steveAction(kinds.machines, machine, 'deleteResourceQuota').then(
      () => { say(t('common.saved')); onClose(); },
      (error: unknown) => sayError(t('machines.quotaRemove'), error),
    );
  return (
    <FormDialog title={t('machines.quotaTitle', { name })} onClose={onClose} run={run} submitLabel={t('common.save')} incomplete={limit === ''}>
      <Text size="sm" c="dimmed">{t('machines.quotaHelp')}</Text>
      <SizeInput label={t('machines.quotaLimit')} value={limit} onChange={setLimit} />
      <Button variant="subtle" size="xs" style={{ alignSelf: 'flex-start' }} onClick={() => void remove()}>{t('machines.quotaRemove')}</Button>
    </FormDialog>
  );
}

import { Alert, Checkbox, Stack, Text } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { say } from '@/parts/notify';
import type { MachineRow } from '../machine';
import { claimsOf } from '../machine';
import { deleteMachine } from '../operations';

/** Names what is lost: the machine, its snapshots, and the disks that are ticked. */
export function DeleteDialog({ row, onClose }: { row: MachineRow; onClose: () => void }) {
  const { machine, instance } = row;
  const { name, namespace } = machine.metadata;
  const claims = claimsOf(machine);
  const [chosen, setChosen] = useState<string[]>(claims);
  const navigate = useNavigate();

  const run = async () => {
    await deleteMachine(machine, chosen);
    say(t('common.actionDone', { action: t('machines.delete'), name }));
    void navigate({ to: '/machines' });
  };
  const command = chosen.length === claims.length ? `croft vm delete ${name} -n ${namespace}` : `croft vm delete ${name} --keep-disks -n ${namespace}`;
  return (
    <FormDialog title={t('machines.deleteTitle', { name })} onClose={onClose} run={run} submitLabel={t('machines.delete')} dangerous command={command}>
      {instance && <Alert color="yellow">{t('machines.deleteRunning')}</Alert>}
      <Text>{t('machines.deleteHelp')}</Text>
      {claims.length > 0 && (
        <Checkbox.Group label={t('machines.deleteDisks')} value={chosen} onChange={setChosen}>
          <Stack gap="xs" mt="xs">
            {claims.map((claim) => <Checkbox key={claim} value={claim} label={claim} />)}
          </Stack>
        </Checkbox.Group>
      )}
    </FormDialog>
  );
}

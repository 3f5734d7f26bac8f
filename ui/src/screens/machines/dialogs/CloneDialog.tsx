import { Switch, Text } from '@mantine/core';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { steveAction } from '@/api/client';
import { kinds } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';

export function CloneDialog({ machine, onClose }: { machine: VirtualMachine; onClose: () => void }) {
  const { name: original, namespace = 'default' } = machine.metadata;
  const [name, setName] = useState(`${original}-copy`.slice(0, 63));
  const [start, setStart] = useState(false);
  const navigate = useNavigate();

  const run = async () => {
    await steveAction(kinds.machines, machine, 'clone', { targetVm: name, runStrategy: start ? 'RerunOnFailure' : 'Halted' });
    void navigate({ to: `/machines/${namespace}/${name}` });
  };
  return (
    <FormDialog title={t('machines.cloneTitle', { name: original })} onClose={onClose} run={run} submitLabel={t('machines.clone')} incomplete={!isValidName(name)} command={`croft vm clone ${original} ${name}${start ? ' --start' : ''} -n ${namespace}`}>
      <Text size="sm" c="dimmed">{t('machines.cloneHelp')}</Text>
      <NameInput label={t('machines.cloneName')} value={name} onChange={setName} autoFocus />
      <Switch label={t('machines.cloneStart')} checked={start} onChange={(event) => setStart(event.currentTarget.checked)} />
    </FormDialog>
  );
}

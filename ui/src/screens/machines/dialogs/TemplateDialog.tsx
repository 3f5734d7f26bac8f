import { Switch, TextInput } from '@mantine/core';
import { useState } from 'react';
import { steveAction } from '@/api/client';
import { kinds } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { say } from '@/parts/notify';

export function TemplateDialog({ machine, onClose }: { machine: VirtualMachine; onClose: () => void }) {
  const [name, setName] = useState(machine.metadata.name);
  const [description, setDescription] = useState('');
  const [withData, setWithData] = useState(false);

  const run = async () => {
    await steveAction(kinds.machines, machine, 'createTemplate', { name, description, withData });
    say(t('common.actionDone', { action: t('machines.template'), name }));
  };
  return (
    <FormDialog title={t('machines.templateTitle', { name: machine.metadata.name })} onClose={onClose} run={run} submitLabel={t('common.create')} incomplete={!isValidName(name)}>
      <NameInput label={t('machines.templateName')} value={name} onChange={setName} autoFocus />
      <TextInput label={t('common.description')} value={description} onChange={(event) => setDescription(event.currentTarget.value)} />
      <Switch label={t('machines.templateData')} description={t('machines.templateDataHelp')} checked={withData} onChange={(event) => setWithData(event.currentTarget.checked)} />
    </FormDialog>
  );
}

import { Alert, Switch, Text } from '@mantine/core';
import { useState } from 'react';
import { useObject } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { isRunning } from '../availability';
import type { MachineRow } from '../machine';
import { backupObject, keep, timedName } from '../operations';

/** A snapshot or a backup of a machine. */
export function KeepDialog({ row, type, onClose }: { row: MachineRow; type: 'snapshot' | 'backup'; onClose: () => void }) {
  const { machine } = row;
  const { name: of, namespace } = machine.metadata;
  const [name, setName] = useState(() => timedName(of));
  const [memory, setMemory] = useState(false);
  const target = useObject(type === 'backup' ? kinds.settings : null, undefined, 'backup-target');
  const missing = type === 'backup' && target.snapshot.phase === 'ready' && !target.object?.value;

  const run = async () => {
    await keep(machine, name, type, memory);
    say(t('common.actionDone', { action: t(`machines.${type}`), name }));
  };
  const command = `croft ${type} create ${of} --name ${name}${memory ? ' --memory' : ''} -n ${namespace}`;
  return (
    <FormDialog title={t(`machines.${type}Title`, { name: of })} onClose={onClose} run={run} submitLabel={t(`machines.${type}`)} incomplete={!isValidName(name) || missing} objects={[backupObject(machine, name, type, memory)]} command={command} placed={['metadata.name']}>
      {(error) => (
        <>
          <Text size="sm" c="dimmed">{t(`machines.${type}Help`)}</Text>
          {missing && <Alert color="yellow">{t('machines.backupNoTarget')}</Alert>}
          <NameInput label={t('machines.keepName')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} autoFocus />
          {type === 'snapshot' && isRunning(row) && (
            <Switch label={t('machines.snapshotMemory')} description={t('machines.snapshotMemoryHelp')} checked={memory} onChange={(event) => setMemory(event.currentTarget.checked)} />
          )}
        </>
      )}
    </FormDialog>
  );
}

import { Button, Checkbox, List, Stack, Text } from '@mantine/core';
import { IconCamera, IconCloudUpload, IconPlayerPlay, IconPower, IconTrash } from '@tabler/icons-react';
import { useState } from 'react';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { forEachOf } from '@/parts/bulk';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { FormDialog } from '@/parts/form/FormDialog';
import { powerActions } from './availability';
import type { MachineRow } from './machine';
import { claimsOf } from './machine';
import { deleteMachine, keep, power, timedName } from './operations';

/** What can be done with several machines at once: each for those that it fits. */
export function BulkActions({ rows, onDone }: { rows: readonly MachineRow[]; onDone: () => void }) {
  const can = useCan(rows[0]?.machine.metadata.namespace ?? '');
  const startable = rows.filter((row) => powerActions(row).includes('start'));
  const stoppable = rows.filter((row) => powerActions(row).includes('stop'));

  const run = async (action: string, chosen: readonly MachineRow[], each: (row: MachineRow) => Promise<unknown>) => {
    await forEachOf(action, chosen, each);
    onDone();
  };
  const stop = () =>
    ask({
      title: t('machines.stopMany', { count: stoppable.length }),
      body: t('machines.stopManyHelp'),
      confirm: t('machines.stop'),
      run: () => run(t('machines.stop'), stoppable, (row) => power(row.machine, 'stop')),
    });
  const keepAll = (type: 'snapshot' | 'backup') => run(t(`machines.${type}`), rows, (row) => keep(row.machine, timedName(row.machine.metadata.name), type));

  return (
    <>
      {can('update', kinds.machines) && (
        <>
          <Button size="xs" variant="default" disabled={startable.length === 0} leftSection={<IconPlayerPlay size={14} />} onClick={() => void run(t('machines.start'), startable, (row) => power(row.machine, 'start'))}>{t('machines.start')}</Button>
          <Button size="xs" variant="default" disabled={stoppable.length === 0} leftSection={<IconPower size={14} />} onClick={stop}>{t('machines.stop')}</Button>
        </>
      )}
      {can('create', kinds.backups) && (
        <>
          <Button size="xs" variant="default" leftSection={<IconCamera size={14} />} onClick={() => void keepAll('snapshot')}>{t('machines.snapshot')}</Button>
          <Button size="xs" variant="default" leftSection={<IconCloudUpload size={14} />} onClick={() => void keepAll('backup')}>{t('machines.backup')}</Button>
        </>
      )}
      {can('delete', kinds.machines) && (
        <Button size="xs" variant="default" c="red" leftSection={<IconTrash size={14} />} onClick={() => openDialog((close) => <DeleteMany rows={rows} onClose={close} onDone={onDone} />)}>{t('machines.delete')}</Button>
      )}
    </>
  );
}

const named = 8;

function DeleteMany({ rows, onClose, onDone }: { rows: readonly MachineRow[]; onClose: () => void; onDone: () => void }) {
  const [disks, setDisks] = useState(false);
  const run = async () => {
    await forEachOf(t('machines.delete'), rows, ({ machine }) => deleteMachine(machine, disks ? claimsOf(machine) : []));
    onDone();
  };
  return (
    <FormDialog title={t('machines.deleteManyTitle', { count: rows.length })} onClose={onClose} run={run} submitLabel={t('machines.delete')} dangerous>
      <Stack gap="sm">
        <Text>{t('machines.deleteHelp')}</Text>
        <List size="sm">
          {rows.slice(0, named).map(({ machine }) => <List.Item key={machine.metadata.uid}>{machine.metadata.namespace}/{machine.metadata.name}</List.Item>)}
          {rows.length > named && <List.Item>… {rows.length - named}</List.Item>}
        </List>
        <Checkbox label={t('machines.deleteDisksMany')} checked={disks} onChange={(event) => setDisks(event.currentTarget.checked)} />
      </Stack>
    </FormDialog>
  );
}

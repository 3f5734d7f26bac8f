import { Modal, Select, Stack, Text } from '@mantine/core';
import { useMemo } from 'react';
import { keyOf } from '@/api/collection';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { KeepDialog } from '@/screens/machines/dialogs/KeepDialog';
import { useMachineRows } from '@/screens/machines/useMachineRows';
import type { KeptType } from './backup';

/** Asks which machine is to be kept; the rest is asked for by the machine's own dialog. */
export function ChooseMachine({ type, onClose }: { type: KeptType; onClose: () => void }) {
  const { rows, snapshot } = useMachineRows();
  const choices = useMemo(() => rows.map((row) => ({ value: keyOf(row.machine), label: `${row.machine.metadata.namespace}/${row.machine.metadata.name}` })), [rows]);
  const choose = (key: string | null) => {
    const row = rows.find((each) => keyOf(each.machine) === key);
    if (!row) return;
    onClose();
    openDialog((close) => <KeepDialog row={row} type={type} onClose={close} />);
  };
  return (
    <Modal opened onClose={onClose} title={t(`machines.${type}`)} closeButtonProps={{ 'aria-label': t('common.close') }}>
      <Stack pb="md">
        {snapshot.phase === 'ready' && choices.length === 0 ? <Text>{t('backups.noMachines')}</Text> : <Select label={t('backups.machine')} searchable data={choices} onChange={choose} data-autofocus comboboxProps={{ withinPortal: true }} />}
      </Stack>
    </Modal>
  );
}

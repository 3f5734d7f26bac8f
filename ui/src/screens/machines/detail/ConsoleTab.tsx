import { Button } from '@mantine/core';
import { IconPlayerPlay, IconTerminal2 } from '@tabler/icons-react';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { useQueryState } from '@/app/address';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ConsoleView } from '@/parts/console/ConsoleView';
import { isRunning, powerActions } from '../availability';
import { runPower } from '../powerButtons';
import { stateLabel } from '../State';
import { stateOf } from '../machine';
import type { TabProps } from './MachineDetail';

/** It opens by itself as soon as the machine runs. */
export function Tab({ row }: TabProps) {
  const { machine, instance } = row;
  const can = useCan(machine.metadata.namespace ?? '');
  const [{ kind }, setParams] = useQueryState();
  if (!instance || !isRunning(row)) {
    const mayStart = powerActions(row).includes('start') && can('update', kinds.machines, machine.metadata.name);
    return (
      <Blank icon={IconTerminal2} title={mayStart ? t('console.notRunning') : stateLabel(stateOf(machine))} text={t('console.notRunningHelp')}>
        {mayStart && <Button leftSection={<IconPlayerPlay size={17} />} onClick={() => runPower(machine, 'start')}>{t('machines.start')}</Button>}
      </Blank>
    );
  }
  // Another instance of the same machine is another console.
  return <ConsoleView key={instance.metadata.uid} instance={instance} kind={kind === 'serial' ? 'serial' : 'vnc'} onKind={(next) => setParams({ kind: next === 'vnc' ? undefined : next })} />;
}

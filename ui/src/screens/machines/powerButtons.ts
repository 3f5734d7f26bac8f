import type { Icon } from '@tabler/icons-react';
import { IconPlayerPause, IconPlayerPlay, IconPlugX, IconPower, IconReload, IconRotateClockwise } from '@tabler/icons-react';
import type { VirtualMachine } from '@/api/kubevirt';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { say, sayError } from '@/parts/notify';
import type { PowerAction } from './availability';
import { power } from './operations';

export const powerIcons: Record<PowerAction, Icon> = {
  start: IconPlayerPlay,
  stop: IconPower,
  restart: IconReload,
  softreboot: IconRotateClockwise,
  pause: IconPlayerPause,
  unpause: IconPlayerPlay,
  forceStop: IconPlugX,
};

/** Does it, after a question where something may be lost. */
export function runPower(machine: VirtualMachine, action: PowerAction): void {
  const { name } = machine.metadata;
  const label = t(`machines.${action}`);
  if (action === 'forceStop') {
    ask({ title: t('machines.forceStopTitle', { name }), body: t('machines.forceStopHelp'), confirm: label, dangerous: true, run: () => power(machine, action) });
    return;
  }
  if (action === 'restart') {
    ask({ title: t('machines.restartTitle', { name }), body: t('machines.restartHelp'), confirm: label, run: () => power(machine, action) });
    return;
  }
  power(machine, action).then(
    () => say(t('common.actionDone', { action: label, name })),
    (error: unknown) => sayError(t('common.actionFailed', { action: label, name }), error),
  );
}

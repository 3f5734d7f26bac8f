import type { MachineRow } from './machine';
import { stateOf } from './machine';

/** What can be done with a machine as it is; the server has the last word. */

export type PowerAction = 'start' | 'stop' | 'restart' | 'softreboot' | 'pause' | 'unpause' | 'forceStop';

export function powerActions({ machine, instance }: MachineRow): PowerAction[] {
  if (machine.metadata.deletionTimestamp) return [];
  const phase = instance?.status?.phase;
  const paused = instance?.status?.conditions?.some((condition) => condition.type === 'Paused' && condition.status === 'True') ?? false;
  const state = stateOf(machine);
  if (paused) return ['unpause', 'stop', 'forceStop'];
  if (state === 'Stopping') return ['forceStop'];
  if (phase === 'Running') return ['stop', 'restart', 'softreboot', 'pause', 'forceStop'];
  if (instance && phase !== 'Succeeded' && phase !== 'Failed') return ['stop', 'forceStop'];
  const halted = (machine.spec.runStrategy ?? 'Halted') === 'Halted' || machine.spec.runStrategy === 'Manual' || state === 'Stopped';
  return halted || phase === 'Succeeded' || phase === 'Failed' ? ['start'] : ['stop'];
}

export function isRunning({ instance }: MachineRow): boolean {
  return instance?.status?.phase === 'Running';
}

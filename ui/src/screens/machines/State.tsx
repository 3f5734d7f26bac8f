import { en } from '@/i18n/en';
import type { Key } from '@/i18n';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import type { MachineRow } from './machine';
import { stateOf, toneOf, troubleOf } from './machine';

/** A state's name on the page; one that is not known is called as the server calls it. */
export function stateLabel(state: string): string {
  const key = `state${state}`;
  return key in en.machines ? t(`machines.${key}` as Key) : state;
}

export function MachineState({ row }: { row: MachineRow }) {
  const state = stateOf(row.machine);
  const tone = toneOf(state);
  const trouble = tone === 'ok' || tone === 'idle' ? undefined : troubleOf(row);
  return <StatusBadge tone={tone} label={stateLabel(state)} {...(trouble && { hint: trouble })} />;
}

import { Tooltip } from '@mantine/core';
import { mergePatch } from '@/api/client';
import type { ScheduleVMBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { language, t } from '@/i18n';
import { say, sayError } from '@/parts/notify';
import { StatusBadge } from '@/parts/StatusBadge';
import { exact, relative, useNow } from '@/parts/Time';
import { nextTimes, parseCron } from './cron';
import { isSuspended, scheduleTones, stateOf, suspendedWhy } from './schedule';
import { cronInWords } from './words';

export function ScheduleStateCell({ schedule }: { schedule: ScheduleVMBackup }) {
  const state = stateOf(schedule);
  const hint = state === 'failing' ? t('schedules.failures', { count: schedule.status?.failure ?? 0, max: schedule.spec.maxFailure }) : isSuspended(schedule) ? suspendedWhy(schedule) : undefined;
  return <StatusBadge tone={scheduleTones[state]} label={t(`schedules.${state}`)} {...(hint && { hint })} />;
}

/** The time in words; the text itself on hover, or alone if it is not understood. */
export function CronText({ cron }: { cron: string }) {
  const words = cronInWords(cron);
  if (!words) return <code>{cron}</code>;
  return <Tooltip label={<code>{cron}</code>}><span>{words}</span></Tooltip>;
}

export function nextOf(schedule: ScheduleVMBackup, now: number): number | undefined {
  const cron = isSuspended(schedule) ? null : parseCron(schedule.spec.cron);
  return cron ? nextTimes(cron, now, 1)[0] : undefined;
}

/** When it is due next: "in 3 hours", with the exact time on hover. */
export function NextTime({ schedule }: { schedule: ScheduleVMBackup }) {
  const now = useNow();
  const next = nextOf(schedule, now);
  if (next === undefined) return <>–</>;
  return <Tooltip label={exact(next)}><time dateTime={new Date(next).toISOString()}>{relative(next, now, language())}</time></Tooltip>;
}

export function setSuspended(schedule: ScheduleVMBackup, suspend: boolean): void {
  mergePatch(kinds.schedules, schedule, { spec: { suspend } }).then(
    () => say(t('common.actionDone', { action: t(suspend ? 'detail.suspend' : 'detail.resume'), name: schedule.metadata.name })),
    (error: unknown) => sayError(schedule.metadata.name, error),
  );
}

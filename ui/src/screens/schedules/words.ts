import { language, t } from '@/i18n';
import type { Cron } from './cron';
import { parseCron } from './cron';

/** Says in plain words when a schedule is due: "Monday to Friday at 02:00 UTC". */
export function cronInWords(text: string): string | null {
  const cron = parseCron(text);
  if (!cron) return null;
  const days = daysOf(cron);
  const months = cron.months.length === 12 ? '' : ` ${t('schedules.inMonths', { months: listed(cron.months.map(monthName)) })}`;
  return `${timesOf(cron, days)}${months}`;
}

function timesOf(cron: Cron, days: string): string {
  const { minutes, hours } = cron;
  const minuteStep = stepOf(minutes, 60);
  const hourStep = stepOf(hours, 24);
  const on = days ? `, ${days}` : '';
  if (minutes.length === 60 && hours.length === 24) return t('schedules.everyMinute') + on;
  if (minuteStep && hours.length === 24) return t('schedules.everyMinutes', { count: minuteStep }) + on;
  if (minutes.length === 1 && hours.length === 24) return t('schedules.everyHour', { minute: two(minutes[0] ?? 0) }) + on;
  if (minutes.length === 1 && hourStep && hourStep < 12) return t('schedules.everyHours', { count: hourStep, minute: two(minutes[0] ?? 0) }) + on;
  if (minutes.length * hours.length <= 6) {
    const times = hours.flatMap((hour) => minutes.map((minute) => `${two(hour)}:${two(minute)}`));
    return t('schedules.atTimes', { days: days || t('schedules.everyDay'), times: listed(times) });
  }
  const span = hours.length === 24 ? '' : ` ${t('schedules.inHours', { hours: listed(hours.map(two)) })}`;
  const within = minutes.length === 60 ? t('schedules.everyMinute') : minuteStep ? t('schedules.everyMinutes', { count: minuteStep }) : t('schedules.atMinutes', { minutes: listed(minutes.map(two)) });
  return within + span + on;
}

function daysOf(cron: Cron): string {
  const days = cron.days.length === 31 ? '' : t('schedules.onDays', { days: listed(cron.days.map((day) => `${day}.`)) });
  const weekdays = cron.weekdays.length === 7 ? '' : weekdaysOf(cron.weekdays);
  if (days && weekdays) return t('schedules.either', { days, weekdays });
  return days || weekdays;
}

function weekdaysOf(weekdays: readonly number[]): string {
  const isRow = weekdays.length > 2 && weekdays.every((day, index) => index === 0 || day === (weekdays[index - 1] ?? 0) + 1);
  if (isRow) return t('schedules.weekdayRange', { from: weekdayName(weekdays[0] ?? 0), to: weekdayName(weekdays.at(-1) ?? 0) });
  return t('schedules.onWeekdays', { days: listed(weekdays.map(weekdayName)) });
}

/** The step of a row that goes from 0 to the end evenly, as 0, 15, 30, 45. */
function stepOf(values: readonly number[], end: number): number | null {
  const step = values[1];
  if (values[0] !== 0 || !step || end % step !== 0 || values.length !== end / step) return null;
  return values.every((value, index) => value === index * step) ? step : null;
}

function two(value: number): string {
  return String(value).padStart(2, '0');
}

function listed(words: readonly string[]): string {
  return new Intl.ListFormat(language(), { type: 'conjunction' }).format(words);
}

/** The 1st of March 2026 is a Sunday. */
function weekdayName(day: number): string {
  return new Intl.DateTimeFormat(language(), { weekday: 'long', timeZone: 'UTC' }).format(Date.UTC(2026, 2, 1 + day));
}

function monthName(month: number): string {
  return new Intl.DateTimeFormat(language(), { month: 'long', timeZone: 'UTC' }).format(Date.UTC(2026, month - 1, 1));
}

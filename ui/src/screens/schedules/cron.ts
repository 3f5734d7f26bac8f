/** Reads what the server takes as a time to do something: five fields in UTC, or `@daily` and the like. */

export interface Cron {
  minutes: readonly number[];
  hours: readonly number[];
  days: readonly number[];
  months: readonly number[];
  weekdays: readonly number[];
  /** A field that is not `*` bounds the days; with both bounded, either will do. */
  anyDay: boolean;
  anyWeekday: boolean;
}

const shorthands: Record<string, string> = {
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
  '@monthly': '0 0 1 * *',
  '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@hourly': '0 * * * *',
};
const monthNames = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const dayNames = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];

/** The times that a text stands for, or null if it is not understood. */
export function parseCron(text: string): Cron | null {
  const plain = text.trim().toLowerCase();
  const fields = (shorthands[plain] ?? plain).split(/\s+/);
  if (fields.length !== 5) return null;
  const [minute = '', hour = '', day = '', month = '', weekday = ''] = fields;
  const minutes = values(minute, 0, 59);
  const hours = values(hour, 0, 23);
  const days = values(day, 1, 31);
  const months = values(month, 1, 12, monthNames, 1);
  const weekdays = values(weekday, 0, 7, dayNames, 0);
  if (!minutes || !hours || !days || !months || !weekdays) return null;
  return {
    minutes,
    hours,
    days,
    months,
    // Sunday is 0 as well as 7.
    weekdays: unique(weekdays.map((each) => each % 7)),
    anyDay: isOpen(day),
    anyWeekday: isOpen(weekday),
  };
}

function isOpen(field: string): boolean {
  return field === '*' || field === '?';
}

function values(field: string, low: number, high: number, names: readonly string[] = [], first = 0): number[] | null {
  const found: number[] = [];
  for (const part of field.split(',')) {
    const [range = '', step, ...rest] = part.split('/');
    const by = step === undefined ? 1 : number(step);
    if (rest.length > 0 || by === null || by < 1) return null;
    const bounds = boundsOf(range, step !== undefined, low, high, names, first);
    if (!bounds) return null;
    for (let value = bounds[0]; value <= bounds[1]; value += by) found.push(value);
  }
  return unique(found);
}

function boundsOf(range: string, stepped: boolean, low: number, high: number, names: readonly string[], first: number): [number, number] | null {
  if (isOpen(range)) return [low, names === dayNames ? 6 : high];
  const [from = '', to, ...rest] = range.split('-');
  const start = number(from, names, first);
  // `5/10` means from 5 to the end.
  const end = to === undefined ? (stepped ? high : start) : number(to, names, first);
  if (rest.length > 0 || start === null || end === null || start < low || end > high || start > end) return null;
  return [start, end];
}

function number(text: string, names: readonly string[] = [], first = 0): number | null {
  const named = names.indexOf(text);
  if (named >= 0) return named + first;
  return /^\d{1,4}$/.test(text) ? Number(text) : null;
}

function unique(list: readonly number[]): number[] {
  return [...new Set(list)].sort((a, b) => a - b);
}

const dayMs = 86_400_000;
/** The 29th of February comes every eight years at the least. */
const horizonDays = 8 * 366;

/** The next times after a moment. */
export function nextTimes(cron: Cron, after: number, count: number): number[] {
  const found: number[] = [];
  const midnight = Math.floor(after / dayMs) * dayMs;
  for (let day = 0; day < horizonDays && found.length < count; day += 1) {
    const start = midnight + day * dayMs;
    if (!fitsDay(cron, new Date(start))) continue;
    for (const hour of cron.hours) {
      for (const minute of cron.minutes) {
        const time = start + (hour * 60 + minute) * 60_000;
        if (time > after && found.length < count) found.push(time);
      }
    }
  }
  return found;
}

function fitsDay(cron: Cron, date: Date): boolean {
  if (!cron.months.includes(date.getUTCMonth() + 1)) return false;
  const day = cron.days.includes(date.getUTCDate());
  const weekday = cron.weekdays.includes(date.getUTCDay());
  return !cron.anyDay && !cron.anyWeekday ? day || weekday : day && weekday;
}

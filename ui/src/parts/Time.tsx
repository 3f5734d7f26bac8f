import { useSyncExternalStore } from 'react';
import { language, t } from '@/i18n';

/** One clock for all ages on the page: they tick together, and only while somebody looks. */
const tickMs = 5_000;
const listeners = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    listeners.forEach((each) => each());
  }, tickMs);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}

const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ['year', 365 * 86_400],
  ['month', 30 * 86_400],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
  ['second', 1],
];

/** These are dear to make and the same for everybody. */
const formats = new Map<string, Intl.RelativeTimeFormat>();
function relativeFormat(locale: string): Intl.RelativeTimeFormat {
  const known = formats.get(locale) ?? new Intl.RelativeTimeFormat(locale, { numeric: 'auto', style: 'short' });
  formats.set(locale, known);
  return known;
}

const exactFormats = new Map<string, Intl.DateTimeFormat>();

/** "3 minutes ago", in the user's language. */
export function relative(from: number, to: number, locale: string): string {
  const seconds = Math.round((from - to) / 1000);
  const format = relativeFormat(locale);
  const [unit, size] = units.find(([, length]) => Math.abs(seconds) >= length) ?? ['second', 1];
  // Clocks of server and browser differ a little: nothing was made in the future.
  if (Math.abs(seconds) < 5) return t('common.now');
  return format.format(Math.trunc(seconds / size), unit);
}

export function exact(time: number): string {
  const known = exactFormats.get(language()) ?? new Intl.DateTimeFormat(language(), { dateStyle: 'medium', timeStyle: 'long' });
  exactFormats.set(language(), known);
  return known.format(time);
}

/** A moment, relative, with the exact time on hover. */
export function Time({ at }: { at: string | undefined }) {
  const current = useNow();
  if (!at) return <>–</>;
  const time = Date.parse(at);
  if (Number.isNaN(time)) return <>{at}</>;
  // The browser's own hint: tables have hundreds of these.
  return <time dateTime={at} title={exact(time)}>{relative(time, Math.max(current, time), language())}</time>;
}

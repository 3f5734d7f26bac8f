import { expect, it } from 'vitest';
import { nextTimes, parseCron } from './cron';
import { cronInWords } from './words';

const next = (text: string, after: string, count = 1) => {
  const cron = parseCron(text);
  return cron ? nextTimes(cron, Date.parse(after), count).map((time) => new Date(time).toISOString().slice(0, 16)) : null;
};

it('finds the next times, in UTC', () => {
  expect(next('0 2 * * *', '2026-11-16T19:00:00Z', 2)).toEqual(['2026-11-17T02:00', '2026-11-18T02:00']);
  expect(next('*/15 * * * *', '2026-11-16T19:14:59Z', 3)).toEqual(['2026-11-16T19:15', '2026-11-16T19:30', '2026-11-16T19:45']);
  expect(next('@weekly', '2026-11-16T19:00:00Z')).toEqual(['2026-11-22T00:00']);
  expect(next('30 4 1,15 * *', '2026-11-15T04:30:00Z')).toEqual(['2026-12-01T04:30']);
});

it('takes names, and Sunday as 0 and 7', () => {
  expect(next('0 0 * jan MON', '2026-11-16T00:00:00Z')).toEqual(['2027-01-04T00:00']);
  expect(parseCron('0 0 * * 7')?.weekdays).toEqual([0]);
  expect(parseCron('0 0 * * 5-7')?.weekdays).toEqual([0, 5, 6]);
});

it('lets either day do if both are bounded', () => {
  expect(next('0 0 13 * 5', '2026-11-13T00:00:00Z', 2)).toEqual(['2026-11-20T00:00', '2026-11-27T00:00']);
  expect(next('0 0 13 * *', '2026-11-13T00:00:00Z')).toEqual(['2026-12-13T00:00']);
});

it('finds the 29th of February, and gives up on the 30th', () => {
  expect(next('0 0 29 2 *', '2026-11-16T00:00:00Z')).toEqual(['2028-02-29T00:00']);
  expect(next('0 0 30 2 *', '2026-11-16T00:00:00Z')).toEqual([]);
});

it('does not understand what is none', () => {
  for (const text of ['', '* * * *', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * * 13 *', '*/0 * * * *', '5-1 * * * *', 'a * * * *', '@often', '* * * * * *', '1/2/3 * * * *']) {
    expect(parseCron(text), text).toBeNull();
  }
});

it('says it in words', () => {
  expect(cronInWords('* * * * *')).toBe('every minute');
  expect(cronInWords('*/15 * * * *')).toBe('every 15 minutes');
  expect(cronInWords('5 * * * *')).toBe('every hour at :05');
  expect(cronInWords('0 */6 * * *')).toBe('every 6 hours at :00');
  expect(cronInWords('0 2 * * *')).toBe('every day at 02:00 UTC');
  expect(cronInWords('0 2,14 * * 1-5')).toBe('Monday to Friday at 02:00 and 14:00 UTC');
  expect(cronInWords('30 3 * * 0')).toBe('on Sunday at 03:30 UTC');
  expect(cronInWords('0 4 1 * *')).toBe('on the 1. of the month at 04:00 UTC');
  expect(cronInWords('0 4 1 1,7 *')).toBe('on the 1. of the month at 04:00 UTC in January and July');
  expect(cronInWords('nonsense')).toBeNull();
});

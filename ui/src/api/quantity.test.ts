import { expect, it } from 'vitest';
import { binaryQuantity, formatBytes, parseQuantity } from './quantity';

it.each([
  ['2Gi', 2147483648],
  ['500m', 0.5],
  ['1.5', 1.5],
  ['1e3', 1000],
  ['24682416Ki', 25274793984],
  ['.5Gi', 536870912],
  ['10G', 1e10],
  ['', undefined],
  ['Gi', undefined],
  ['1Zi', undefined],
  ['1 Gi', undefined],
])('reads %s', (text, expected) => {
  expect(parseQuantity(text)).toBe(expected);
});

it.each([
  [0, '0 B'],
  [1536, '1.5 KiB'],
  [1610612736, '1.5 GiB'],
  [10 * 2 ** 30, '10 GiB'],
  [undefined, '–'],
])('shows %s', (bytes, expected) => {
  expect(formatBytes(bytes)).toBe(expected);
});

it('writes what it can without a remainder', () => {
  expect(binaryQuantity(2 ** 30)).toBe('1Gi');
  expect(binaryQuantity(1.5 * 2 ** 30)).toBe('1536Mi');
  expect(binaryQuantity(1000)).toBe('1000');
});

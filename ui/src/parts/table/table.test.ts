import { expect, it } from 'vitest';
import type { Column } from './columns';
import { compareValues, naturalKey, searchText, wordsOf } from './columns';
import { toCsv } from './csv';

interface Row { name: string; size: number | null }
const columns: Column<Row>[] = [
  { id: 'name', title: 'Name', value: (row) => row.name },
  { id: 'size', title: 'Size', value: (row) => row.size },
];

it('sorts numbers in names as numbers, and what is missing last', () => {
  const names = ['web-10', 'Web-9', 'web-1'].sort((a, b) => compareValues(naturalKey(a), naturalKey(b)));
  expect(names).toEqual(['web-1', 'Web-9', 'web-10']);
  expect([3, null, 1].sort(compareValues)).toEqual([1, 3, null]);
});

it('finds words in any column', () => {
  const text = searchText(columns)({ name: 'Database', size: 7 });
  expect(wordsOf(' data 7 ').every((word) => text.includes(word))).toBe(true);
  expect(text.includes('data7')).toBe(false);
});

it('writes CSV that is safe to open', () => {
  const csv = toCsv(columns, [{ name: '=cmd()', size: -5 }, { name: 'a "b", c', size: null }]);
  expect(csv).toBe('Name,Size\r\n\'=cmd(),-5\r\n"a ""b"", c",');
});

import { expect, test } from 'vitest';
import { squares } from './secondFactor';

test('dark squares are drawn inside their margin', () => {
  expect(squares(['10', '01'], 4)).toBe('M4 4h1v1h-1zM5 5h1v1h-1z');
  expect(squares([], 4)).toBe('');
});

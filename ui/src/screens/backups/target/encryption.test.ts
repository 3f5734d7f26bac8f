import { expect, it } from 'vitest';
import { currentKey, earlierKeys, encode, isEncrypting, isLongEnough, keyObject, newKey, replaced } from './encryption';

it('makes keys that are long enough and never the same', () => {
  expect(isLongEnough(newKey())).toBe(true);
  expect(newKey()).not.toBe(newKey());
  expect(isLongEnough('x'.repeat(31))).toBe(false);
});

it('keeps the old key under another name when there is a new one', () => {
  const secret = keyObject('old key');
  const patch = replaced(secret, 'new key', new Date('2026-11-16T19:30:05Z'));
  expect(patch).toEqual({ 'until-20261116-193005': encode('old key'), [currentKey]: encode('new key') });
});

it('stops encrypting without losing the key', () => {
  const secret = keyObject('old key');
  expect(isEncrypting(secret)).toBe(true);
  expect(replaced(secret, null, new Date('2026-11-16T19:30:05Z'))).toEqual({ 'until-20261116-193005': encode('old key'), [currentKey]: null });
  expect(earlierKeys({ ...secret, data: { a: 'x', [currentKey]: 'y' } })).toEqual(['a']);
  expect(isEncrypting({ ...secret, data: { a: 'x' } })).toBe(false);
  expect(isEncrypting(undefined)).toBe(false);
});

import { expect, it } from 'vitest';
import { fill } from './message';

it('puts values in', () => {
  expect(fill('{name} of {count}', 'en', { name: 'web', count: 10000 })).toBe('web of 10,000');
  expect(fill('{name} of {count}', 'de', { name: 'web', count: 10000 })).toBe('web of 10.000');
});

it('leaves alone what it has no value for', () => {
  expect(fill('{name}', 'en')).toBe('{name}');
});

it('chooses the plural form', () => {
  const message = { one: '{count} machine', other: '{count} machines' };
  expect(fill(message, 'en', { count: 1 })).toBe('1 machine');
  expect(fill(message, 'en', { count: 0 })).toBe('0 machines');
});

it('does not read values as patterns', () => {
  expect(fill('{a}', 'en', { a: '{b}', b: 'x' })).toBe('{b}');
});

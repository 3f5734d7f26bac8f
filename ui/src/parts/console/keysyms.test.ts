import { expect, it } from 'vitest';
import { keysymOf, typeText } from './keysyms';

it('knows letters, line ends and other scripts', () => {
  expect(keysymOf('a')).toBe(0x61);
  expect(keysymOf('\n')).toBe(0xff0d);
  expect(keysymOf('é')).toBe(0xe9);
  expect(keysymOf('€')).toBe(0x010020ac);
});

it('holds Shift for capitals and lets everything go again', () => {
  const sent: [number, boolean][] = [];
  typeText('aB', (keysym, down) => sent.push([keysym, down]));
  expect(sent).toEqual([[0x61, true], [0x61, false], [0xffe1, true], [0x42, true], [0x42, false], [0xffe1, false]]);
});

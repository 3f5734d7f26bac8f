import { IconBox } from '@tabler/icons-react';
import { expect, it } from 'vitest';
import { matching } from './paletteEntries';

const entry = (id: string, label: string, group = 'Machines') => ({ id, label, detail: '', group, icon: IconBox });
const entries = [entry('area machines', 'Virtual machines', 'Screens'), entry('machine a', 'my-web'), entry('machine b', 'web-1'), entry('machine c', 'db')];

it('finds by all words, beginnings first', () => {
  expect(matching(entries, 'web').map((each) => each.label)).toEqual(['web-1', 'my-web']);
  expect(matching(entries, 'web my').map((each) => each.label)).toEqual(['my-web']);
  expect(matching(entries, 'nothing')).toEqual([]);
});

it('offers screens and actions before anything is typed', () => {
  expect(matching(entries, ' ').map((each) => each.id)).toEqual(['area machines']);
});

import { expect, it } from 'vitest';
import { annotationsOf, retentionOf } from './retention';

it('reads what a machine keeps and writes it back', () => {
  const annotations = { 'croft.io/keep-backups': '7', 'croft.io/keep-backups-for': '30d' };
  expect(retentionOf(annotations)).toEqual({ count: 7, period: 30, unit: 'd' });
  expect(annotationsOf(retentionOf(annotations))).toEqual(annotations);
});

it('removes what is not bounded', () => {
  expect(retentionOf(undefined)).toEqual({ count: null, period: null, unit: 'd' });
  expect(annotationsOf(retentionOf({ 'croft.io/keep-backups': 'many', 'croft.io/keep-backups-for': '3 days' }))).toEqual({ 'croft.io/keep-backups': null, 'croft.io/keep-backups-for': null });
});

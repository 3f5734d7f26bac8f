import { describe, expect, it } from 'vitest';
import { isMemory, linesOf } from './quota';

describe('a quota', () => {
  it('tells what is used of each bound', () => {
    const quota = { metadata: { name: 'q' }, spec: { hard: { 'limits.cpu': '8' } }, status: { hard: { 'limits.cpu': '8', 'limits.memory': '16Gi' }, used: { 'limits.cpu': '500m', 'limits.memory': '4Gi' } } };
    expect(linesOf(quota)).toEqual([
      { name: 'limits.cpu', used: 0.5, hard: 8, text: '0.5 / 8' },
      { name: 'limits.memory', used: 4 * 2 ** 30, hard: 16 * 2 ** 30, text: '4 GiB / 16 GiB' },
    ]);
  });

  it('is shown before the server has counted', () => {
    expect(linesOf({ metadata: { name: 'q' }, spec: { hard: { pods: '3' } } })[0]?.text).toBe('– / 3');
    expect(isMemory('requests.memory')).toBe(true);
    expect(isMemory('pods')).toBe(false);
  });
});

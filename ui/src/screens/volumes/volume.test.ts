import { expect, it } from 'vitest';
import type { PersistentVolumeClaim } from '@/api/core';
import { volumeState } from './volume';

function volume(status: object): PersistentVolumeClaim {
  return { apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata: { name: 'disk', namespace: 'default' }, status };
}

it('grows while it is bound, and says why it cannot', () => {
  const resizing = { type: 'Resizing', status: 'True' };
  expect(volumeState(volume({ phase: 'Bound', conditions: [resizing] }))).toEqual({ tone: 'busy', label: 'volumes.resizing' });
  expect(volumeState(volume({ phase: 'Bound', conditions: [{ ...resizing, reason: 'VolumeResizeFailed', message: 'insufficient storage' }] }))).toEqual({
    tone: 'bad',
    label: 'volumes.cannotGrow',
    message: 'insufficient storage',
  });
  expect(volumeState(volume({ phase: 'Bound', conditions: [{ ...resizing, status: 'False' }] })).label).toBe('volumes.bound');
});

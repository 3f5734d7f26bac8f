import { describe, expect, it } from 'vitest';
import type { Node } from '@/api/core';
import { clockOf, rolesOf, stateOf, troublesOf } from './host';

function node(changes: { ready?: string; unschedulable?: boolean; annotations?: Record<string, string>; conditions?: { type: string; status: string; message?: string }[] } = {}): Node {
  return {
    metadata: { name: 'n1', annotations: changes.annotations ?? {}, labels: { 'node-role.kubernetes.io/etcd': 'true', other: 'x' } },
    spec: { unschedulable: changes.unschedulable ?? false },
    status: { conditions: [{ type: 'Ready', status: changes.ready ?? 'True' }, ...(changes.conditions ?? [])] },
  };
}

describe('a host', () => {
  it('is what matters most about it', () => {
    const maintenance = { annotations: { 'harvesterhci.io/maintain-status': 'completed' }, unschedulable: true };
    expect(stateOf(node())).toBe('ready');
    expect(stateOf(node({ unschedulable: true }))).toBe('cordoned');
    expect(stateOf(node(maintenance))).toBe('maintenance');
    expect(stateOf(node({ annotations: { 'harvesterhci.io/maintain-status': 'running' } }))).toBe('enteringMaintenance');
    expect(stateOf(node({ ...maintenance, ready: 'Unknown' }))).toBe('notReady');
  });

  it('has troubles where pressure is true and abilities are false', () => {
    const conditions = [
      { type: 'MemoryPressure', status: 'False' },
      { type: 'DiskPressure', status: 'True', message: 'full' },
      { type: 'KVM', status: 'False', message: 'emulated' },
      { type: 'Drained', status: 'False' },
      { type: 'Pool', status: 'True' },
    ];
    expect(troublesOf(node({ conditions }))).toEqual([{ type: 'DiskPressure', message: 'full' }, { type: 'KVM', message: 'emulated' }]);
  });

  it('tells its roles and its clock', () => {
    expect(rolesOf(node())).toEqual(['etcd']);
    expect(clockOf(node())).toBeNull();
    expect(clockOf(node({ annotations: { 'node.harvesterhci.io/ntp-service': '{"ntpSyncStatus":"synced"}' } }))?.status).toBe('synced');
    expect(clockOf(node({ annotations: { 'node.harvesterhci.io/ntp-service': 'nonsense' } }))).toBeNull();
  });
});

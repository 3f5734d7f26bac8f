import { expect, it } from 'vitest';
import type { VirtualMachineBackup, VirtualMachineRestore } from '@/api/harvester';
import { isPinned, restoreStateOf, sizeOf, speedOf, stateOf } from './backup';

function backup(status: VirtualMachineBackup['status'], annotations: Record<string, string> = {}): VirtualMachineBackup {
  return { metadata: { name: 'b', annotations }, spec: { type: 'backup', source: { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: 'web' } }, ...(status && { status }) };
}

function restore(status: VirtualMachineRestore['status']): VirtualMachineRestore {
  return { metadata: { name: 'r' }, spec: { target: { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: 'web' }, virtualMachineBackupName: 'b', virtualMachineBackupNamespace: 'default' }, ...(status && { status }) };
}

it('tells how a backup is', () => {
  expect(stateOf(backup(undefined)).state).toBe('running');
  expect(stateOf(backup({ readyToUse: true })).state).toBe('ready');
  expect(stateOf(backup({ readyToUse: false, error: { message: 'the target is full' } }))).toEqual({ state: 'failed', message: 'the target is full' });
  expect(stateOf({ ...backup({ readyToUse: true }), metadata: { name: 'b', deletionTimestamp: 'now' } }).state).toBe('deleting');
});

it('says that the key is missing even if all disks are there', () => {
  const found = stateOf(backup({ readyToUse: true, conditions: [{ type: 'MetadataReady', status: 'False', reason: 'KeyNeeded', message: 'no key' }] }));
  expect(found).toEqual({ state: 'keyNeeded', message: 'no key' });
});

it('adds up the disks, and knows the speed only while it is sent', () => {
  expect(sizeOf(backup({ volumeBackups: [{ volumeName: 'a', volumeSize: 3 }, { volumeName: 'b', volumeSize: 4 }, { volumeName: 'c' }] }))).toBe(7);
  expect(sizeOf(backup(undefined))).toBeUndefined();
  expect(speedOf(backup({ progress: 10 }, { 'croft.io/bytes-per-second': '1000' }))).toBe(1000);
  expect(speedOf(backup({ readyToUse: true }, { 'croft.io/bytes-per-second': '1000' }))).toBeUndefined();
  expect(speedOf(backup(undefined))).toBeUndefined();
  expect(isPinned(backup(undefined, { 'croft.io/keep': 'true' }))).toBe(true);
});

it('tells how a restore is', () => {
  expect(restoreStateOf(restore(undefined))).toEqual({ state: 'running', message: undefined });
  expect(restoreStateOf(restore({ complete: true, conditions: [{ type: 'InProgress', status: 'False', message: 'Operation complete' }] })).state).toBe('complete');
  expect(restoreStateOf(restore({ conditions: [{ type: 'InProgress', status: 'True', message: 'Creating new PVCs' }] }))).toEqual({ state: 'running', message: 'Creating new PVCs' });
  expect(restoreStateOf(restore({ conditions: [{ type: 'InProgress', status: 'False', reason: 'Error', message: 'no room' }] }))).toEqual({ state: 'failed', message: 'no room' });
});

import { describe, expect, it } from 'vitest';
import type { VirtualMachine, VirtualMachineInstance } from '@/api/kubevirt';
import { powerActions } from './availability';
import { addressesOf, claimTemplatesOf, cpusOf, joinRows, memoryOf, ownLabels, stateOf, toneOf } from './machine';

function machine(name: string, over: Partial<VirtualMachine['spec']> = {}, status?: VirtualMachine['status']): VirtualMachine {
  return {
    metadata: { name, namespace: 'default' },
    spec: { runStrategy: 'RerunOnFailure', template: { spec: { domain: { cpu: { sockets: 2, cores: 2 }, devices: {}, resources: { limits: { memory: '1Gi' } } } } }, ...over },
    ...(status && { status }),
  };
}

function instance(name: string, phase: string, conditions: { type: string; status: string }[] = []): VirtualMachineInstance {
  return { metadata: { name, namespace: 'default' }, spec: { domain: { devices: {} } }, status: { phase, conditions } };
}

describe('a machine', () => {
  it('has processors, memory and a state', () => {
    expect(cpusOf(machine('a'))).toBe(4);
    expect(memoryOf(machine('a'))).toBe(2 ** 30);
    expect(stateOf(machine('a', {}, { printableStatus: 'Running' }))).toBe('Running');
    expect(stateOf({ ...machine('a', {}, { printableStatus: 'Running' }), metadata: { name: 'a', deletionTimestamp: 'x' } })).toBe('Terminating');
    expect(toneOf('CrashLoopBackOff')).toBe('bad');
  });

  it('shows addresses that somebody can use', () => {
    const running = instance('a', 'Running');
    running.status = { interfaces: [{ ipAddresses: ['10.0.0.2', 'fe80::1'] }, { ipAddress: '10.0.0.3' }] };
    expect(addressesOf(running)).toEqual(['10.0.0.2', '10.0.0.3']);
  });

  it('survives an annotation that is no JSON', () => {
    expect(claimTemplatesOf({ metadata: { annotations: { 'harvesterhci.io/volumeClaimTemplates': '{' } } })).toEqual([]);
  });

  it('hides the labels of programs', () => {
    expect(ownLabels({ 'harvesterhci.io/creator': 'x', tier: 'web', 'kubevirt.io/a': 'b' })).toEqual([['tier', 'web']]);
  });
});

describe('what can be done', () => {
  it.each([
    ['stopped', { machine: machine('a', { runStrategy: 'Halted' }), instance: undefined }, ['start']],
    ['running', { machine: machine('a'), instance: instance('a', 'Running') }, ['stop', 'restart', 'softreboot', 'pause', 'forceStop']],
    ['paused', { machine: machine('a'), instance: instance('a', 'Running', [{ type: 'Paused', status: 'True' }]) }, ['unpause', 'stop', 'forceStop']],
    ['starting', { machine: machine('a'), instance: instance('a', 'Scheduling') }, ['stop', 'forceStop']],
    ['failed', { machine: machine('a', { runStrategy: 'Manual' }), instance: instance('a', 'Failed') }, ['start']],
    ['being deleted', { machine: { ...machine('a'), metadata: { name: 'a', deletionTimestamp: 'x' } }, instance: undefined }, []],
  ])('%s', (_, row, expected) => {
    expect(powerActions(row)).toEqual(expected);
  });
});

it('keeps rows the same when nothing changed', () => {
  const [a, b] = [machine('a'), machine('b')];
  const first = joinRows([a, b], []);
  const second = joinRows([a, b], [instance('b', 'Running')]);
  expect(second[0]).toBe(first[0]);
  expect(second[1]).not.toBe(first[1]);
});

it('finds rows again where they were, and only there', () => {
  const [a, b, c] = [machine('a'), machine('b'), machine('b')];
  const instances = [instance('b', 'Running')];
  const first = joinRows([a, b], instances);
  const before = { machines: [a, b], instances, rows: first };
  expect(joinRows([a, c], instances, before)).toEqual([first[0], { machine: c, instance: instances[0] }]);
  expect(joinRows([b], instances, before)).toEqual([first[1]]);
  expect(joinRows([a, b], [], before).map((row) => row.instance)).toEqual([undefined, undefined]);
});

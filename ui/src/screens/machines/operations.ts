import { createObject, request, steveAction } from '@/api/client';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds, stevePath } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import type { PowerAction } from './availability';

/** What the page has the server do with machines, and how it is said by command. */

export function power(machine: VirtualMachine, action: PowerAction): Promise<unknown> {
  return steveAction(kinds.machines, machine, action);
}

const commands: Record<PowerAction, string> = {
  start: 'start',
  stop: 'stop',
  restart: 'restart',
  softreboot: 'restart --soft',
  pause: 'pause',
  unpause: 'pause --resume',
  forceStop: 'stop --force',
};

export function powerCommand(machine: VirtualMachine, action: PowerAction): string {
  const [verb, ...flags] = commands[action].split(' ');
  return ['croft vm', verb, machine.metadata.name, ...flags, '-n', machine.metadata.namespace].join(' ');
}

/** Deletes a machine and those of its claims that are named. */
export function deleteMachine(machine: VirtualMachine, claims: readonly string[]): Promise<unknown> {
  const { namespace = 'default', name } = machine.metadata;
  const query = claims.length > 0 ? `?removedDisks=${claims.map(encodeURIComponent).join(',')}` : '';
  return request('DELETE', `${stevePath(kinds.machines)}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}${query}`);
}

export function backupObject(machine: VirtualMachine, name: string, type: 'snapshot' | 'backup', withMemory = false): VirtualMachineBackup {
  return {
    apiVersion: 'harvesterhci.io/v1beta1',
    kind: 'VirtualMachineBackup',
    metadata: {
      name,
      namespace: machine.metadata.namespace ?? 'default',
      ...(withMemory && { annotations: { 'croft.io/memory': 'true' } }),
    },
    spec: { type, source: { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: machine.metadata.name } },
  };
}

export function keep(machine: VirtualMachine, name: string, type: 'snapshot' | 'backup', withMemory = false): Promise<unknown> {
  return createObject(kinds.backups, backupObject(machine, name, type, withMemory));
}

/** `web-20261116-1830`: the time says more than a number would. */
export function timedName(base: string, now = new Date()): string {
  const stamp = now.toISOString().slice(0, 16).replace(/[-:]/g, '').replace('T', '-');
  return `${base.slice(0, 45)}-${stamp}`;
}

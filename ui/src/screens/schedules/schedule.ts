import type { ScheduleVMBackup } from '@/api/harvester';
import { apiVersionOf, kinds } from '@/api/kinds';
import type { Tone } from '@/parts/StatusBadge';

/** What a schedule's object says, in the words of the page. */

export type KeptType = 'snapshot' | 'backup';

export function typeOf(schedule: ScheduleVMBackup): KeptType {
  return schedule.spec.vmbackup.type ?? 'backup';
}

export function machineOf(schedule: ScheduleVMBackup): string {
  return schedule.spec.vmbackup.source.name;
}

export function isSuspended(schedule: ScheduleVMBackup): boolean {
  return schedule.status?.suspended ?? schedule.spec.suspend ?? false;
}

/** Why it is suspended, if nobody wanted that. */
export function suspendedWhy(schedule: ScheduleVMBackup): string | undefined {
  const condition = schedule.status?.conditions?.find((each) => each.type === 'BackupSuspend' && each.status === 'True');
  return condition?.message || condition?.reason;
}

export type ScheduleState = 'active' | 'failing' | 'suspended' | 'gaveUp';

export const scheduleTones: Record<ScheduleState, Tone> = { active: 'ok', failing: 'warn', suspended: 'idle', gaveUp: 'bad' };

export function stateOf(schedule: ScheduleVMBackup): ScheduleState {
  const failures = schedule.status?.failure ?? 0;
  if (isSuspended(schedule)) return failures >= schedule.spec.maxFailure ? 'gaveUp' : 'suspended';
  return failures > 0 ? 'failing' : 'active';
}

/** The label by which its snapshots and backups are found. */
export const scheduleLabel = 'harvesterhci.io/svmbackupUID';
/** `namespace/name` of the schedule that made a backup. */
export const scheduleAnnotation = 'harvesterhci.io/svmbackupId';

export interface ScheduleForm {
  name: string;
  namespace: string;
  machine: string;
  type: KeptType;
  cron: string;
  retain: number;
  maxFailure: number;
}

export function scheduleObject(form: ScheduleForm): ScheduleVMBackup {
  return {
    apiVersion: apiVersionOf(kinds.schedules),
    kind: kinds.schedules.kind,
    metadata: { name: form.name, namespace: form.namespace },
    spec: {
      cron: form.cron.trim(),
      retain: form.retain,
      maxFailure: form.maxFailure,
      suspend: false,
      vmbackup: { type: form.type, source: { apiGroup: 'kubevirt.io', kind: 'VirtualMachine', name: form.machine } },
    },
  };
}

/** The same by the croft command. */
export function scheduleCommand(form: ScheduleForm): string {
  const parts = [`croft backup schedule create ${form.name}`, `--vm ${form.machine}`, `--cron "${form.cron.trim()}"`, `--retain ${form.retain}`, form.type === 'snapshot' && '--snapshot', `-n ${form.namespace}`];
  return parts.filter(Boolean).join(' ');
}

import type { Node } from '@/api/core';
import type { ScheduleVMBackup, Setting, VirtualMachineBackup, VirtualMachineImage } from '@/api/harvester';
import type { VirtualMachine } from '@/api/kubevirt';
import type { UsageItem } from '@/api/usage';
import { t } from '@/i18n';
import { stateOf, toneOf, troubleOf } from '../machines/machine';
import { imageState, labelOf } from '../images/image';
import { stateLabel } from '../machines/State';

/** Something that somebody should look at. */
export interface Concern {
  id: string;
  severity: 'bad' | 'warn';
  title: string;
  help: string;
  to: string;
}

export interface Known {
  nodes: readonly Node[];
  machines: readonly VirtualMachine[];
  images: readonly VirtualMachineImage[];
  backups: readonly VirtualMachineBackup[];
  schedules: readonly ScheduleVMBackup[];
  backupTarget: Setting | undefined;
  usage: readonly UsageItem[];
}

const fullPercent = 85;

export function concerns(known: Known): Concern[] {
  const found = [
    ...known.nodes.flatMap(ofNode),
    ...known.usage.flatMap(ofStorage),
    ...known.machines.flatMap(ofMachine),
    ...known.images.flatMap(ofImage),
    ...known.backups.flatMap(ofBackup),
    ...known.schedules.flatMap(ofSchedule),
    ...ofTarget(known),
  ];
  return found.sort((a, b) => Number(a.severity === 'warn') - Number(b.severity === 'warn'));
}

function ofNode(node: Node): Concern[] {
  const { name } = node.metadata;
  const to = `/hosts/${name}`;
  const condition = (type: string) => node.status?.conditions?.find((each) => each.type === type);
  const found: Concern[] = [];
  const ready = condition('Ready');
  if (ready?.status !== 'True') found.push({ id: `ready ${name}`, severity: 'bad', title: t('dashboard.hostNotReady', { name }), help: ready?.message ?? t('dashboard.hostNotReadyHelp'), to });
  for (const type of ['MemoryPressure', 'DiskPressure', 'PIDPressure']) {
    const pressure = condition(type);
    if (pressure?.status === 'True') found.push({ id: `${type} ${name}`, severity: 'bad', title: t('dashboard.hostPressure', { name, condition: type }), help: pressure.message ?? '', to });
  }
  if (condition('KVM')?.status === 'False') found.push({ id: `kvm ${name}`, severity: 'warn', title: t('dashboard.hostEmulates', { name }), help: t('dashboard.hostEmulatesHelp'), to });
  if (node.spec?.unschedulable) found.push({ id: `cordon ${name}`, severity: 'warn', title: t('dashboard.hostCordoned', { name }), help: t('dashboard.hostCordonedHelp'), to });
  return found;
}

function ofStorage({ node, usage, capacity }: UsageItem): Concern[] {
  const used = usage['storageBytes'];
  const total = capacity['storageBytes'];
  if (used === undefined || !total) return [];
  const percent = Math.round((100 * used) / total);
  if (percent < fullPercent) return [];
  return [{ id: `storage ${node}`, severity: percent > 95 ? 'bad' : 'warn', title: t('dashboard.storageLow', { name: node, percent }), help: t('dashboard.storageLowHelp'), to: '/volumes' }];
}

function ofMachine(machine: VirtualMachine): Concern[] {
  const state = stateOf(machine);
  if (toneOf(state) !== 'bad') return [];
  const { namespace, name } = machine.metadata;
  return [{ id: `machine ${namespace}/${name}`, severity: 'bad', title: t('dashboard.machineFailed', { name, state: stateLabel(state) }), help: troubleOf({ machine, instance: undefined }) ?? '', to: `/machines/${namespace}/${name}` }];
}

function ofImage(image: VirtualMachineImage): Concern[] {
  const state = imageState(image);
  if (state.tone !== 'bad') return [];
  const { namespace, name } = image.metadata;
  return [{ id: `image ${namespace}/${name}`, severity: 'warn', title: t('dashboard.imageFailed', { name: labelOf(image) }), help: state.message ?? '', to: `/images/${namespace}/${name}` }];
}

function ofBackup(backup: VirtualMachineBackup): Concern[] {
  const message = backup.status?.error?.message;
  if (!message || backup.status?.readyToUse) return [];
  const { namespace, name } = backup.metadata;
  return [{ id: `backup ${namespace}/${name}`, severity: 'warn', title: t('dashboard.backupFailed', { name }), help: message, to: `/machines/${namespace}/${backup.spec.source.name}/${backup.spec.type === 'snapshot' ? 'snapshots' : 'backups'}` }];
}

function ofSchedule(schedule: ScheduleVMBackup): Concern[] {
  // One that somebody suspended himself is as he wants it.
  if (!schedule.status?.suspended || schedule.spec.suspend) return [];
  const { namespace, name } = schedule.metadata;
  return [{ id: `schedule ${namespace}/${name}`, severity: 'warn', title: t('dashboard.scheduleSuspended', { name }), help: t('dashboard.scheduleSuspendedHelp'), to: `/machines/${namespace}/${schedule.spec.vmbackup.source.name}/schedules` }];
}

function ofTarget({ backupTarget, machines }: Known): Concern[] {
  if (!backupTarget || backupTarget.value || machines.length === 0) return [];
  return [{ id: 'target', severity: 'warn', title: t('dashboard.noBackupTarget'), help: t('dashboard.noBackupTargetHelp'), to: '/settings/backup-target' }];
}

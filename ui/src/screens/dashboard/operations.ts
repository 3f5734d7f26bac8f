import type { VirtualMachineBackup, VirtualMachineImage, VirtualMachineRestore } from '@/api/harvester';
import type { VirtualMachine } from '@/api/kubevirt';
import { t } from '@/i18n';
import { imageState, labelOf } from '../images/image';
import { stateOf, toneOf } from '../machines/machine';
import { stateLabel } from '../machines/State';

/** Work that is under way, with how far it is where that is known. */
export interface Operation {
  id: string;
  title: string;
  detail: string;
  progress: number | undefined;
  to: string;
}

export function operations(machines: readonly VirtualMachine[], images: readonly VirtualMachineImage[], backups: readonly VirtualMachineBackup[], restores: readonly VirtualMachineRestore[]): Operation[] {
  return [
    ...images
      .filter((image) => imageState(image).tone === 'busy')
      .map((image) => ({ id: image.metadata.uid ?? '', title: t('dashboard.opImage', { name: labelOf(image) }), detail: t(imageState(image).label), progress: imageState(image).progress, to: `/images/${image.metadata.namespace}/${image.metadata.name}` })),
    ...backups
      .filter((backup) => !backup.status?.readyToUse && !backup.status?.error?.message)
      .map((backup) => ({ id: backup.metadata.uid ?? '', title: t(backup.spec.type === 'snapshot' ? 'dashboard.opSnapshot' : 'dashboard.opBackup', { name: backup.metadata.name }), detail: '', progress: backup.status?.progress, to: `/machines/${backup.metadata.namespace}/${backup.spec.source.name}/${backup.spec.type === 'snapshot' ? 'snapshots' : 'backups'}` })),
    ...restores
      .filter((restore) => !restore.status?.complete)
      .map((restore) => ({ id: restore.metadata.uid ?? '', title: t('dashboard.opRestore', { name: restore.spec.target.name }), detail: '', progress: restore.status?.progress, to: `/machines/${restore.metadata.namespace}/${restore.spec.target.name}` })),
    ...machines
      .filter((machine) => toneOf(stateOf(machine)) === 'busy')
      .slice(0, 20)
      .map((machine) => ({ id: machine.metadata.uid ?? '', title: t('dashboard.opMachine', { name: machine.metadata.name }), detail: stateLabel(stateOf(machine)), progress: undefined, to: `/machines/${machine.metadata.namespace}/${machine.metadata.name}` })),
  ];
}

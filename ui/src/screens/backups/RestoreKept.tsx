import { useObject } from '@/api/collections';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { RestoreDialog } from '@/screens/machines/dialogs/RestoreDialog';
import { machineOf } from './backup';

/** The dialog for a restore, once it is known whether the machine is still there and whether it runs. */
export function RestoreKept({ backup, onClose }: { backup: VirtualMachineBackup; onClose: () => void }) {
  const { namespace } = backup.metadata;
  const machine = useObject(kinds.machines, namespace, machineOf(backup));
  const instance = useObject(kinds.instances, namespace, machineOf(backup));
  if (machine.snapshot.phase === 'loading' || instance.snapshot.phase === 'loading') return null;
  return <RestoreDialog backup={backup} row={machine.object && { machine: machine.object, instance: instance.object }} onClose={onClose} />;
}

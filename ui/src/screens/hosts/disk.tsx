import type { BlockDevice } from '@/api/cluster';
import { t } from '@/i18n';
import type { Tone } from '@/parts/StatusBadge';
import { StatusBadge } from '@/parts/StatusBadge';

export function diskName(disk: BlockDevice): string {
  return disk.status?.deviceStatus?.devPath || disk.spec.devPath;
}

/** The pool of the data directory: every host has it, and nobody can take it away. */
export function isOwnPool(disk: BlockDevice): boolean {
  return disk.metadata.labels?.['croft.io/pool'] === 'default';
}

function stateOf(disk: BlockDevice): { tone: Tone; label: string } {
  if (disk.status?.state === 'Inactive') return { tone: 'bad', label: t('hosts.diskGone') };
  switch (disk.status?.provisionPhase) {
    case 'Provisioned':
      return disk.spec.provision === false ? { tone: 'busy', label: t('hosts.diskReleasing') } : { tone: 'ok', label: t('hosts.diskUsed') };
    case 'Unprovisioning':
      return { tone: 'busy', label: t('hosts.diskReleasing') };
    default:
      return disk.spec.provision ? { tone: 'busy', label: t('hosts.diskPreparing') } : { tone: 'idle', label: t('hosts.diskUnused') };
  }
}

export function DiskState({ disk }: { disk: BlockDevice }) {
  const failed = disk.status?.conditions?.find((condition) => condition.status === 'False' && condition.message);
  return <StatusBadge {...stateOf(disk)} hint={failed?.message} />;
}

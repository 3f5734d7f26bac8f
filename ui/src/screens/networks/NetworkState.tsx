import type { NetworkAttachmentDefinition } from '@/api/cluster';
import { t } from '@/i18n';
import { StatusBadge } from '@/parts/StatusBadge';
import { factsOf } from './network';

/** Whether its cluster network is there; a bridge of the host is not asked. */
export function NetworkState({ network }: { network: NetworkAttachmentDefinition }) {
  const ready = network.metadata.labels?.['network.harvesterhci.io/ready'];
  if (ready === 'false') return <StatusBadge tone="warn" label={t('networks.notReady')} hint={t('networks.notReadyHelp', { name: factsOf(network).clusterNetwork })} />;
  return <StatusBadge tone="ok" label={t('networks.ready')} />;
}

export function vlanText(network: NetworkAttachmentDefinition): string {
  const { vlan, trunk } = factsOf(network);
  if (trunk) return t('networks.trunk');
  return vlan > 0 ? String(vlan) : t('networks.untagged');
}

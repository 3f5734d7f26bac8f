import { Menu } from '@mantine/core';
import { IconEdit } from '@tabler/icons-react';
import type { NetworkAttachmentDefinition } from '@/api/cluster';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { useMayDo } from '@/parts/kind/rights';
import { NetworkDialog } from './NetworkDialog';
import { factsOf } from './network';

export function NetworkItems({ network }: { network: NetworkAttachmentDefinition }) {
  const mayUpdate = useMayDo('update', kinds.networks, network);
  const { plugin, trunk } = factsOf(network);
  // Others were written by hand: the form could not show all of them.
  if (!mayUpdate || plugin !== 'bridge' || trunk) return null;
  return <Menu.Item leftSection={<IconEdit size={16} />} onClick={() => openDialog((close) => <NetworkDialog network={network} onClose={close} />)}>{t('common.edit')}</Menu.Item>;
}

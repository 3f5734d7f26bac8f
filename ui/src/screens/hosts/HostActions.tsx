import { Menu } from '@mantine/core';
import { IconBan, IconCircleCheck, IconTag, IconTool, IconToolsOff } from '@tabler/icons-react';
import { mergePatch, steveAction } from '@/api/client';
import type { Node } from '@/api/core';
import { kinds } from '@/api/kinds';
import { useMay } from '@/api/permissions';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { say, sayError } from '@/parts/notify';
import { stateOf } from './host';
import { MaintenanceDialog } from './MaintenanceDialog';
import { TaintsDialog } from './TaintsDialog';

/** What can be done with a host. */
export function HostItems({ node }: { node: Node }) {
  const mayUpdate = useMay('update', kinds.nodes);
  if (!mayUpdate) return null;
  const state = stateOf(node);
  const maintained = state === 'maintenance' || state === 'enteringMaintenance';
  return (
    <>
      {maintained ? (
        <Menu.Item leftSection={<IconToolsOff size={16} />} onClick={() => endMaintenance(node)}>{t('hosts.endMaintenance')}</Menu.Item>
      ) : (
        <Menu.Item leftSection={<IconTool size={16} />} onClick={() => openDialog((close) => <MaintenanceDialog node={node} onClose={close} />)}>{t('hosts.startMaintenance')}</Menu.Item>
      )}
      {!maintained && !node.spec?.unschedulable && <Menu.Item leftSection={<IconBan size={16} />} onClick={() => cordon(node)}>{t('hosts.cordon')}</Menu.Item>}
      {!maintained && node.spec?.unschedulable && <Menu.Item leftSection={<IconCircleCheck size={16} />} onClick={() => uncordon(node)}>{t('hosts.uncordon')}</Menu.Item>}
      <Menu.Item leftSection={<IconTag size={16} />} onClick={() => openDialog((close) => <TaintsDialog node={node} onClose={close} />)}>{t('hosts.editTaints')}</Menu.Item>
      <Menu.Divider />
    </>
  );
}

/** As kubectl does it: Harvester's own action refuses the last host, where this is a way to keep new machines away for a while. */
function cordon(node: Node): void {
  const { name } = node.metadata;
  ask({
    title: t('hosts.cordonTitle', { name }),
    body: t('hosts.cordonHelp'),
    confirm: t('hosts.cordon'),
    run: () => mergePatch(kinds.nodes, node, { spec: { unschedulable: true } }),
  });
}

function uncordon(node: Node): void {
  tell(t('hosts.uncordon'), node, mergePatch(kinds.nodes, node, { spec: { unschedulable: null } }));
}

export function endMaintenance(node: Node): void {
  tell(t('hosts.endMaintenance'), node, steveAction(kinds.nodes, node, 'disableMaintenanceMode'));
}

function tell(action: string, node: Node, work: Promise<unknown>): void {
  const { name } = node.metadata;
  work.then(
    () => say(t('common.actionDone', { action, name })),
    (error: unknown) => sayError(t('common.actionFailed', { action, name }), error),
  );
}

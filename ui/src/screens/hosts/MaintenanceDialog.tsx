import { Checkbox, List, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { steveAction } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { Node } from '@/api/core';
import { asApiError } from '@/api/errors';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { Notice } from '@/parts/Notice';
import { say } from '@/parts/notify';
import { machinesOn } from './host';

interface Obstacle {
  message: string;
  vms: string[];
}

/** Before a host is emptied: what runs there, what stands in the way, and what becomes of it. */
export function MaintenanceDialog({ node, onClose }: { node: Node; onClose: () => void }) {
  const { name } = node.metadata;
  const [force, setForce] = useState(false);
  const running = machinesOn(useCollection(kinds.instances).items, name);
  const { data } = useQuery({ queryKey: ['maintenance', name], queryFn: () => obstaclesOf(node), staleTime: 0 });
  const needsForce = data !== undefined && (data.refusal !== null || data.obstacles.length > 0);
  return (
    <FormDialog
      title={t('hosts.maintenanceTitle', { name })}
      onClose={onClose}
      submitLabel={t('hosts.startMaintenance')}
      dangerous={running.length > 0}
      incomplete={data === undefined || (needsForce && !force)}
      command={`curl -X POST https://…/v1/harvester/nodes/${name}?action=enableMaintenanceMode -d '${JSON.stringify(force ? { force: 'true' } : {})}'`}
      run={async () => {
        await steveAction(kinds.nodes, node, 'enableMaintenanceMode', force ? { force: 'true' } : {});
        say(t('common.actionDone', { action: t('hosts.startMaintenance'), name }));
      }}
    >
      <Stack gap="sm">
        <Text>{t('hosts.maintenanceHelp')}</Text>
        {running.length > 0 && (
          <>
            <Text fw={560}>{t('hosts.shutDown', { count: running.length })}</Text>
            <List size="sm">{running.map(({ metadata }) => <List.Item key={metadata.uid}>{metadata.namespace}/{metadata.name}</List.Item>)}</List>
          </>
        )}
        {needsForce && (
          <Notice title={t('hosts.inTheWay')}>
            {data.refusal && <Text size="sm">{data.refusal}</Text>}
            {data.obstacles.map((obstacle) => <Text key={obstacle.message} size="sm">{obstacle.message}: {obstacle.vms.join(', ')}</Text>)}
            <Checkbox mt="sm" label={t('hosts.force')} checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />
          </Notice>
        )}
      </Stack>
    </FormDialog>
  );
}

async function obstaclesOf(node: Node): Promise<{ refusal: string | null; obstacles: Obstacle[] }> {
  const obstacles = await steveAction<Obstacle[] | undefined>(kinds.nodes, node, 'listUnhealthyVM');
  const refusal = await steveAction(kinds.nodes, node, 'maintenancePossible').then(
    () => null,
    (error: unknown) => asApiError(error).message,
  );
  return { refusal, obstacles: obstacles ?? [] };
}

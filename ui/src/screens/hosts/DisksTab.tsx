import { Badge, Button, Group, Table, Text } from '@mantine/core';
import { IconDatabase, IconPlus } from '@tabler/icons-react';
import { mergePatch } from '@/api/client';
import type { BlockDevice } from '@/api/cluster';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { say } from '@/parts/notify';
import { Card } from '@/parts/Page';
import { States } from '@/parts/States';
import { diskName, DiskState, isOwnPool } from './disk';
import { AddDeviceDialog, TagsDialog, UseDiskDialog } from './DiskDialogs';

export const disksNamespace = 'longhorn-system';

/** The disks of a host: those that volumes are on, and those that could be. */
export function DisksTab({ node }: { node: string }) {
  const snapshot = useCollection(kinds.blockDevices, { namespace: disksNamespace });
  const can = useCan(disksNamespace);
  const items = snapshot.items.filter((disk) => disk.spec.nodeName === node).sort((a, b) => diskName(a).localeCompare(diskName(b)));
  const add = can('create', kinds.blockDevices) && (
    <Button size="xs" variant="default" leftSection={<IconPlus size={14} />} onClick={() => openDialog((close) => <AddDeviceDialog node={node} onClose={close} />)}>{t('hosts.addDevice')}</Button>
  );
  return (
    <Card title={t('hosts.disks')} actions={add}>
      <States snapshot={{ ...snapshot, items }} empty={<Blank icon={IconDatabase} title={t('hosts.noDisks')} text={t('hosts.noDisksHelp')} />}>
        <Table.ScrollContainer minWidth={720}>
          <Table verticalSpacing="sm">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('hosts.device')}</Table.Th>
                <Table.Th>{t('common.state')}</Table.Th>
                <Table.Th>{t('common.size')}</Table.Th>
                <Table.Th>{t('hosts.model')}</Table.Th>
                <Table.Th>{t('hosts.holds')}</Table.Th>
                <Table.Th>{t('hosts.tags')}</Table.Th>
                <Table.Th />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {items.map((disk) => <DiskRow key={disk.metadata.uid} disk={disk} mayUpdate={can('update', kinds.blockDevices, disk.metadata.name)} />)}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </States>
    </Card>
  );
}

function DiskRow({ disk, mayUpdate }: { disk: BlockDevice; mayUpdate: boolean }) {
  const device = disk.status?.deviceStatus;
  const details = device?.details;
  return (
    <Table.Tr>
      <Table.Td fw={560}>{diskName(disk)}{isOwnPool(disk) && <Text size="xs" c="dimmed">{t('hosts.ownPool')}</Text>}</Table.Td>
      <Table.Td><DiskState disk={disk} /></Table.Td>
      <Table.Td>{formatBytes(device?.capacity?.sizeBytes, language())}</Table.Td>
      <Table.Td>{[details?.vendor, details?.model].filter(Boolean).join(' ') || '–'}{details?.driveType && details.driveType !== 'Unknown' && <Text size="xs" c="dimmed">{details.driveType}</Text>}</Table.Td>
      <Table.Td>{[device?.fileSystem?.type, device?.fileSystem?.mountPoint].filter(Boolean).join(', ') || (device?.partitioned ? t('hosts.partitions') : '–')}</Table.Td>
      <Table.Td><Group gap={4}>{disk.spec.tags?.map((tag) => <Badge key={tag} variant="default" tt="none" fw={450}>{tag}</Badge>)}</Group></Table.Td>
      <Table.Td>{mayUpdate && !isOwnPool(disk) && <DiskActions disk={disk} />}</Table.Td>
    </Table.Tr>
  );
}

function DiskActions({ disk }: { disk: BlockDevice }) {
  const remove = () =>
    ask({
      title: t('hosts.releaseTitle', { name: diskName(disk) }),
      body: t('hosts.releaseHelp'),
      confirm: t('hosts.release'),
      dangerous: true,
      run: async () => {
        await mergePatch(kinds.blockDevices, disk, { spec: { provision: false } });
        say(t('common.actionDone', { action: t('hosts.release'), name: diskName(disk) }));
      },
    });
  return (
    <Group gap={6} justify="flex-end" wrap="nowrap">
      {disk.spec.provision ? (
        <>
          <Button size="compact-sm" variant="subtle" onClick={() => openDialog((close) => <TagsDialog disk={disk} onClose={close} />)}>{t('hosts.tags')}</Button>
          <Button size="compact-sm" variant="subtle" color="red" onClick={remove}>{t('hosts.release')}</Button>
        </>
      ) : (
        <Button size="compact-sm" variant="subtle" onClick={() => openDialog((close) => <UseDiskDialog disk={disk} onClose={close} />)}>{t('hosts.useDisk')}</Button>
      )}
    </Group>
  );
}

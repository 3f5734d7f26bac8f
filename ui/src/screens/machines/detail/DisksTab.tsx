import { Badge, Button, Group, Table, Text } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { steveAction } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { PersistentVolumeClaim } from '@/api/core';
import { kinds } from '@/api/kinds';
import type { Disk, Volume } from '@/api/kubevirt';
import { useCan } from '@/api/permissions';
import { formatBytes, parseQuantity } from '@/api/quantity';
import { language, t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { Card } from '@/parts/Page';
import { AddDiskDialog, ExpandDialog, InsertCdDialog } from '../dialogs/DiskDialogs';
import { claimOf } from '../machine';
import type { TabProps } from './MachineDetail';

interface DiskRow {
  disk: Disk;
  volume: Volume | undefined;
  claim: PersistentVolumeClaim | undefined;
  target: string | undefined;
}

export function Tab({ row }: TabProps) {
  const { machine, instance } = row;
  const { namespace = '', name } = machine.metadata;
  const can = useCan(namespace);
  const mayUpdate = can('update', kinds.machines, name);
  const claims = useCollection(kinds.volumes, { namespace }).items;
  const guest = machine.spec.template.spec;
  const rows = (guest.domain.devices.disks ?? []).map((disk): DiskRow => {
    const volume = guest.volumes?.find((each) => each.name === disk.name);
    const claimName = volume && claimOf(volume);
    return {
      disk,
      volume,
      claim: claims.find((claim) => claim.metadata.name === claimName),
      target: instance?.status?.volumeStatus?.find((status) => status.name === disk.name)?.target,
    };
  });
  const add = () => openDialog((close) => <AddDiskDialog machine={machine} onClose={close} />);
  return (
    <Card actions={mayUpdate && <Button size="xs" variant="default" leftSection={<IconPlus size={14} />} onClick={add}>{t('detail.addDisk')}</Button>} title={t('detail.disks')}>
      <Table.ScrollContainer minWidth={680}>
        <Table verticalSpacing="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('common.name')}</Table.Th>
              <Table.Th>{t('create.volume')}</Table.Th>
              <Table.Th>{t('common.size')}</Table.Th>
              <Table.Th>{t('detail.bus')}</Table.Th>
              <Table.Th>{t('detail.bootOrder')}</Table.Th>
              <Table.Th>{t('detail.target')}</Table.Th>
              <Table.Th />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((each) => (
              <Table.Tr key={each.disk.name}>
                <Table.Td fw={560}>{each.disk.name} {each.volume?.persistentVolumeClaim?.hotpluggable && <Badge size="xs" variant="light" tt="none">{t('detail.hotplugged')}</Badge>}</Table.Td>
                <Table.Td><Source row={each} namespace={namespace} /></Table.Td>
                <Table.Td>{formatBytes(parseQuantity(each.claim?.status?.capacity?.storage ?? each.claim?.spec?.resources?.requests?.storage), language())}</Table.Td>
                <Table.Td>{each.disk.cdrom ? `CD-ROM, ${each.disk.cdrom.bus ?? 'sata'}` : (each.disk.disk?.bus ?? each.disk.lun?.bus ?? '–')}</Table.Td>
                <Table.Td>{each.disk.bootOrder ?? '–'}</Table.Td>
                <Table.Td>{each.target ?? '–'}</Table.Td>
                <Table.Td>{mayUpdate && <DiskActions row={each} machine={machine} />}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}

function Source({ row: { disk, volume }, namespace }: { row: DiskRow; namespace: string }) {
  if (!volume) return <Text size="sm" c="dimmed">{disk.cdrom ? t('detail.emptyDrive') : '–'}</Text>;
  const claim = claimOf(volume);
  if (claim) return <Link to={`/volumes/${namespace}/${claim}`}>{claim}</Link>;
  if (volume.containerDisk) return <>{volume.containerDisk.image}</>;
  if (volume.cloudInitNoCloud ?? volume.cloudInitConfigDrive) return <Text size="sm" c="dimmed">{t('detail.cloudInitDisk')}</Text>;
  return <>{Object.keys(volume).find((key) => key !== 'name')}</>;
}

function DiskActions({ row: { disk, volume, claim }, machine }: { row: DiskRow; machine: TabProps['row']['machine'] }) {
  const { name } = machine.metadata;
  const detach = () =>
    ask({
      title: t('detail.detachTitle', { disk: disk.name, name }),
      body: t('detail.detachHelp'),
      confirm: t('detail.detach'),
      dangerous: true,
      run: () => steveAction(kinds.machines, machine, 'removeVolume', { diskName: disk.name }),
    });
  const eject = () =>
    ask({
      title: t('detail.ejectTitle', { disk: disk.name }),
      body: t('detail.ejectHelp'),
      confirm: t('detail.eject'),
      run: () => steveAction(kinds.machines, machine, 'ejectCdRomVolume', { deviceName: disk.name }),
    });
  return (
    <Group gap={6} justify="flex-end" wrap="nowrap">
      {claim && !disk.cdrom && <Button size="compact-sm" variant="subtle" onClick={() => openDialog((close) => <ExpandDialog claim={claim} onClose={close} />)}>{t('detail.expand')}</Button>}
      {disk.cdrom && !volume && <Button size="compact-sm" variant="subtle" onClick={() => openDialog((close) => <InsertCdDialog machine={machine} disk={disk.name} onClose={close} />)}>{t('detail.insert')}</Button>}
      {disk.cdrom && volume?.persistentVolumeClaim?.hotpluggable && <Button size="compact-sm" variant="subtle" onClick={eject}>{t('detail.eject')}</Button>}
      {!disk.cdrom && volume?.persistentVolumeClaim?.hotpluggable && <Button size="compact-sm" variant="subtle" color="red" onClick={detach}>{t('detail.detach')}</Button>}
    </Group>
  );
}

import { Button, Group, Table } from '@mantine/core';
import { IconCamera } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { deleteObject } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { PersistentVolumeClaim } from '@/api/core';
import type { VolumeSnapshot } from '@/api/storage';
import { kinds } from '@/api/kinds';
import { formatBytes, parseQuantity } from '@/api/quantity';
import { language, t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { States } from '@/parts/States';
import { StatusBadge } from '@/parts/StatusBadge';
import { Time } from '@/parts/Time';
import { RestoreVolumeDialog } from './dialogs';
import { imageOf, sizeOf, usersOf, volumeState } from './volume';
import { VolumeStateCell } from './VolumeState';
import { volumeMenu } from './volumeMenu';

export function Screen() {
  const machines = useCollection(kinds.machines).items;
  const users = useMemo(() => usersOf(machines), [machines]);
  return (
    <KindDetail
      kind={kinds.volumes}
      area="/volumes"
      parent={t('volumes.title')}
      meta={(volume) => <VolumeStateCell volume={volume} />}
      facts={(volume) => [
        [t('volumes.reason'), volumeState(volume).message],
        [t('common.size'), formatBytes(sizeOf(volume), language())],
        [t('volumes.usedBy'), users.get(`${volume.metadata.namespace}/${volume.metadata.name}`)?.map((name) => <Link key={name} to={`/machines/${volume.metadata.namespace}/${name}`}>{name} </Link>)],
        [t('volumes.image'), imageOf(volume) && <Link key="image" to={`/images/${imageOf(volume)}`}>{imageOf(volume)}</Link>],
        [t('volumes.class'), volume.spec?.storageClassName],
        [t('volumes.mode'), volume.spec?.volumeMode],
        [t('volumes.access'), volume.spec?.accessModes?.join(', ')],
      ]}
      tabs={[{ id: 'snapshots', label: t('volumes.snapshots'), content: (volume) => <Snapshots volume={volume} /> }]}
      menu={volumeMenu}
      deleteHelp={t('volumes.deleteHelp')}
    />
  );
}

function Snapshots({ volume }: { volume: PersistentVolumeClaim }) {
  const { namespace = '', name } = volume.metadata;
  const all = useCollection(kinds.volumeSnapshots, { namespace });
  const items = useMemo(() => all.items.filter((snapshot) => snapshot.spec?.source?.persistentVolumeClaimName === name), [all.items, name]);
  return (
    <Card>
      <States snapshot={{ ...all, items }} empty={<Blank icon={IconCamera} title={t('volumes.noSnapshots')} />}>
        <Table verticalSpacing="sm">
          <Table.Tbody>
            {items.map((snapshot) => (
              <Table.Tr key={snapshot.metadata.uid}>
                <Table.Td fw={560}>{snapshot.metadata.name}</Table.Td>
                <Table.Td><SnapshotState snapshot={snapshot} /></Table.Td>
                <Table.Td>{formatBytes(parseQuantity(snapshot.status?.restoreSize), language())}</Table.Td>
                <Table.Td><Time at={snapshot.status?.creationTime ?? snapshot.metadata.creationTimestamp} /></Table.Td>
                <Table.Td>
                  <Group gap={6} justify="flex-end" wrap="nowrap">
                    <Button size="compact-sm" variant="subtle" disabled={!snapshot.status?.readyToUse} onClick={() => openDialog((close) => <RestoreVolumeDialog snapshot={snapshot} volume={name} onClose={close} />)}>{t('volumes.restoreSnapshot')}</Button>
                    <Button size="compact-sm" variant="subtle" color="red" onClick={() => ask({ title: t('common.deleteTitle', { name: snapshot.metadata.name }), body: t('detail.deleteSnapshotHelp'), confirm: t('common.delete'), dangerous: true, run: () => deleteObject(kinds.volumeSnapshots, snapshot) })}>{t('common.delete')}</Button>
                  </Group>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </States>
    </Card>
  );
}

function SnapshotState({ snapshot }: { snapshot: VolumeSnapshot }) {
  if (snapshot.status?.readyToUse) return <StatusBadge tone="ok" label={t('detail.ready')} />;
  if (snapshot.status?.error?.message) return <StatusBadge tone="bad" label={t('detail.failed')} hint={snapshot.status.error.message} />;
  return <StatusBadge tone="busy" label={t('detail.inProgress')} />;
}

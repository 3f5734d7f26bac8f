import { Alert, Button } from '@mantine/core';
import { IconHistory } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { formatBytes, parseQuantity } from '@/api/quantity';
import type { VolumeSnapshot } from '@/api/storage';
import { language, t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Time } from '@/parts/Time';
import { guestOf, ownerOf, stateOf, takenAt, volumeOf } from './volumeSnapshot';
import { RestoreVolumeDialog } from './VolumeSnapshotDialogs';
import { VolumeSnapshotItems } from './VolumeSnapshotItems';
import { OwnerLink } from './VolumeSnapshotList';
import { VolumeSnapshotState } from './VolumeSnapshotState';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.volumeSnapshots}
      area="/volume-snapshots"
      parent={t('snapshots.title')}
      meta={(snapshot) => <VolumeSnapshotState snapshot={snapshot} />}
      facts={(snapshot) => [
        [t('backups.volume'), volumeOf(snapshot) && <Link key="volume" to={`/volumes/${snapshot.metadata.namespace}/${volumeOf(snapshot)}`}>{volumeOf(snapshot)}</Link>],
        [t('common.size'), snapshot.status?.restoreSize && formatBytes(parseQuantity(snapshot.status.restoreSize), language())],
        [t('detail.taken'), <Time key="taken" at={takenAt(snapshot)} />],
        [t('snapshots.class'), snapshot.spec.volumeSnapshotClassName],
        [t('backups.partOf'), ownerOf(snapshot) && <OwnerLink key="owner" snapshot={snapshot} />],
        [t('snapshots.guest'), guestText(snapshot)],
      ]}
      body={(snapshot) => <Trouble snapshot={snapshot} />}
      actions={(snapshot) => <RestoreButton snapshot={snapshot} />}
      menu={(snapshot) => <VolumeSnapshotItems snapshot={snapshot} />}
      deleteHelp={t('detail.deleteSnapshotHelp')}
    />
  );
}

function guestText(snapshot: VolumeSnapshot): string | undefined {
  const guest = guestOf(snapshot);
  if (!guest) return undefined;
  if (!guest.running) return t('snapshots.guestOff');
  const time = new Intl.NumberFormat(language(), { maximumFractionDigits: 1 }).format(guest.pauseMs);
  return t(guest.frozen ? 'snapshots.guestFrozen' : 'snapshots.guestPaused', { time });
}

function Trouble({ snapshot }: { snapshot: VolumeSnapshot }) {
  const { message } = stateOf(snapshot);
  return message ? <Alert color="red" title={t('backups.failed')}>{message}</Alert> : null;
}

function RestoreButton({ snapshot }: { snapshot: VolumeSnapshot }) {
  const can = useCan(snapshot.metadata.namespace ?? '');
  if (!can('create', kinds.volumes) || !can('update', kinds.volumeSnapshots)) return null;
  return <Button leftSection={<IconHistory size={17} />} disabled={!snapshot.status?.readyToUse} onClick={() => openDialog((close) => <RestoreVolumeDialog snapshot={snapshot} onClose={close} />)}>{t('snapshots.restore')}</Button>;
}

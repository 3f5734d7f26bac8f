import { Menu } from '@mantine/core';
import { IconArrowBackUp, IconHistory } from '@tabler/icons-react';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import type { VolumeSnapshot } from '@/api/storage';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { volumeOf } from './volumeSnapshot';
import { RestoreVolumeDialog, RevertVolumeDialog } from './VolumeSnapshotDialogs';

export function VolumeSnapshotItems({ snapshot }: { snapshot: VolumeSnapshot }) {
  const can = useCan(snapshot.metadata.namespace ?? '');
  const ready = snapshot.status?.readyToUse === true;
  const volume = volumeOf(snapshot);
  return (
    <>
      {can('create', kinds.volumes) && can('update', kinds.volumeSnapshots) && (
        <Menu.Item leftSection={<IconHistory size={16} />} disabled={!ready} onClick={() => openDialog((close) => <RestoreVolumeDialog snapshot={snapshot} onClose={close} />)}>{t('snapshots.restore')}</Menu.Item>
      )}
      {volume && can('update', kinds.volumes, volume) && (
        <Menu.Item leftSection={<IconArrowBackUp size={16} />} disabled={!ready} onClick={() => openDialog((close) => <RevertVolumeDialog snapshot={snapshot} onClose={close} />)}>{t('snapshots.revert')}</Menu.Item>
      )}
    </>
  );
}

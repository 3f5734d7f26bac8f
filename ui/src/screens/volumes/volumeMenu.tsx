import { Menu } from '@mantine/core';
import { IconArrowsMaximize, IconCamera, IconCopy, IconPhotoPlus } from '@tabler/icons-react';
import type { PersistentVolumeClaim } from '@/api/core';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { ExpandDialog } from '../machines/dialogs/DiskDialogs';
import { CloneVolumeDialog, ExportDialog, SnapshotVolumeDialog } from './dialogs';

export function volumeMenu(volume: PersistentVolumeClaim) {
  return (
    <>
      <Menu.Item leftSection={<IconArrowsMaximize size={16} />} onClick={() => openDialog((close) => <ExpandDialog claim={volume} onClose={close} />)}>{t('volumes.expand')}</Menu.Item>
      <Menu.Item leftSection={<IconCamera size={16} />} onClick={() => openDialog((close) => <SnapshotVolumeDialog volume={volume} onClose={close} />)}>{t('volumes.snapshot')}</Menu.Item>
      <Menu.Item leftSection={<IconCopy size={16} />} onClick={() => openDialog((close) => <CloneVolumeDialog volume={volume} onClose={close} />)}>{t('volumes.clone')}</Menu.Item>
      <Menu.Item leftSection={<IconPhotoPlus size={16} />} onClick={() => openDialog((close) => <ExportDialog volume={volume} onClose={close} />)}>{t('volumes.export')}</Menu.Item>
    </>
  );
}

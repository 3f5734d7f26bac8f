import { Menu } from '@mantine/core';
import { IconPencil, IconPlayerPause, IconPlayerPlay } from '@tabler/icons-react';
import type { ScheduleVMBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { useMayDo } from '@/parts/kind/rights';
import { isSuspended } from './schedule';
import { setSuspended } from './ScheduleCells';
import { ScheduleDialog } from './ScheduleDialog';

export function ScheduleItems({ schedule }: { schedule: ScheduleVMBackup }) {
  const may = useMayDo('update', kinds.schedules, schedule);
  if (!may) return null;
  const suspended = isSuspended(schedule);
  const Symbol = suspended ? IconPlayerPlay : IconPlayerPause;
  return (
    <>
      <Menu.Item leftSection={<Symbol size={16} />} onClick={() => setSuspended(schedule, !suspended)}>{t(suspended ? 'detail.resume' : 'detail.suspend')}</Menu.Item>
      <Menu.Item leftSection={<IconPencil size={16} />} onClick={() => openDialog((close) => <ScheduleDialog schedule={schedule} onClose={close} />)}>{t('common.edit')}</Menu.Item>
    </>
  );
}

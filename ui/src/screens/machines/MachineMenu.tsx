import { Menu } from '@mantine/core';
import { IconAdjustments, IconCalendarTime, IconCamera, IconCloudUpload, IconCopy, IconGauge, IconTemplate, IconTrash } from '@tabler/icons-react';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { LazyMenu } from '@/parts/LazyMenu';
import { ScheduleDialog } from '@/screens/schedules/ScheduleDialog';
import { powerActions } from './availability';
import { CloneDialog } from './dialogs/CloneDialog';
import { DeleteDialog } from './dialogs/DeleteDialog';
import { KeepDialog } from './dialogs/KeepDialog';
import { QuotaDialog } from './dialogs/QuotaDialog';
import { ResizeDialog } from './dialogs/ResizeDialog';
import { TemplateDialog } from './dialogs/TemplateDialog';
import type { MachineRow } from './machine';
import { powerIcons, runPower } from './powerButtons';

/** Everything that can be done with one machine. What the user has no right to is not there. */
export function MachineMenu({ row, large = false }: { row: MachineRow; large?: boolean }) {
  const { name } = row.machine.metadata;
  return <LazyMenu label={t('common.actionsFor', { name })} large={large}>{() => <MenuContent row={row} />}</LazyMenu>;
}

function MenuContent({ row }: { row: MachineRow }) {
  const { machine } = row;
  const can = useCan(machine.metadata.namespace ?? '');
  const mayUpdate = can('update', kinds.machines, machine.metadata.name);
  const mayKeep = can('create', kinds.backups);
  const mayCreate = can('create', kinds.machines);
  const mayDelete = can('delete', kinds.machines, machine.metadata.name);
  if (!mayUpdate && !mayKeep && !mayCreate && !mayDelete) return <Menu.Label>{t('common.noActions')}</Menu.Label>;
  return (
    <>
      {mayUpdate &&
        powerActions(row).map((action) => {
          const Symbol = powerIcons[action];
          return <Menu.Item key={action} leftSection={<Symbol size={16} />} onClick={() => runPower(machine, action)}>{t(`machines.${action}`)}</Menu.Item>;
        })}
      {mayKeep && (
        <>
          <Menu.Divider />
          <Menu.Item leftSection={<IconCamera size={16} />} onClick={() => openDialog((close) => <KeepDialog row={row} type="snapshot" onClose={close} />)}>{t('machines.snapshot')}</Menu.Item>
          <Menu.Item leftSection={<IconCloudUpload size={16} />} onClick={() => openDialog((close) => <KeepDialog row={row} type="backup" onClose={close} />)}>{t('machines.backup')}</Menu.Item>
        </>
      )}
      {can('create', kinds.schedules) && (
        <Menu.Item leftSection={<IconCalendarTime size={16} />} onClick={() => openDialog((close) => <ScheduleDialog machine={machine} onClose={close} />)}>{t('machines.schedule')}</Menu.Item>
      )}
      <Menu.Divider />
      {mayCreate && (
        <Menu.Item leftSection={<IconCopy size={16} />} onClick={() => openDialog((close) => <CloneDialog machine={machine} onClose={close} />)}>{t('machines.clone')}</Menu.Item>
      )}
      {can('create', kinds.templates) && (
        <Menu.Item leftSection={<IconTemplate size={16} />} onClick={() => openDialog((close) => <TemplateDialog machine={machine} onClose={close} />)}>{t('machines.template')}</Menu.Item>
      )}
      {mayUpdate && (
        <>
          <Menu.Item leftSection={<IconAdjustments size={16} />} onClick={() => openDialog((close) => <ResizeDialog row={row} onClose={close} />)}>{t('machines.resize')}</Menu.Item>
          <Menu.Item leftSection={<IconGauge size={16} />} onClick={() => openDialog((close) => <QuotaDialog machine={machine} onClose={close} />)}>{t('machines.quota')}</Menu.Item>
        </>
      )}
      {mayDelete && (
        <>
          <Menu.Divider />
          <Menu.Item c="red" leftSection={<IconTrash size={16} />} onClick={() => openDialog((close) => <DeleteDialog row={row} onClose={close} />)}>{t('machines.delete')}</Menu.Item>
        </>
      )}
    </>
  );
}

import { Button, Group, Table } from '@mantine/core';
import { IconCalendarTime } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { deleteObject } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { ScheduleVMBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { Card } from '@/parts/Page';
import { States } from '@/parts/States';
import { CronText, ScheduleStateCell, setSuspended } from '@/screens/schedules/ScheduleCells';
import { isSuspended } from '@/screens/schedules/schedule';
import { ScheduleDialog } from '@/screens/schedules/ScheduleDialog';
import type { TabProps } from './MachineDetail';

export function Tab({ row: { machine } }: TabProps) {
  const { namespace = '', name } = machine.metadata;
  const can = useCan(namespace);
  const all = useCollection(kinds.schedules, { namespace });
  const items = useMemo(() => all.items.filter((schedule) => schedule.spec.vmbackup.source.name === name), [all.items, name]);
  const make = can('create', kinds.schedules) && <Button size="xs" variant="default" leftSection={<IconCalendarTime size={14} />} onClick={() => openDialog((close) => <ScheduleDialog machine={machine} onClose={close} />)}>{t('machines.schedule')}</Button>;
  return (
    <Card title={t('detail.schedules')} actions={items.length > 0 && make}>
      <States snapshot={{ ...all, items }} empty={<Blank icon={IconCalendarTime} title={t('detail.noSchedules')} text={t('detail.noSchedulesHelp')}>{make}</Blank>}>
        <Table.ScrollContainer minWidth={560}>
          <Table verticalSpacing="sm">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('common.name')}</Table.Th>
                <Table.Th>{t('common.state')}</Table.Th>
                <Table.Th>{t('common.type')}</Table.Th>
                <Table.Th>{t('forms.cron')}</Table.Th>
                <Table.Th>{t('detail.retain')}</Table.Th>
                <Table.Th />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {items.map((schedule) => (
                <Table.Tr key={schedule.metadata.uid}>
                  <Table.Td fw={560}><Link to={objectAddress('/schedules', schedule)}>{schedule.metadata.name}</Link></Table.Td>
                  <Table.Td><ScheduleStateCell schedule={schedule} /></Table.Td>
                  <Table.Td>{schedule.spec.vmbackup.type === 'snapshot' ? t('detail.snapshots') : t('detail.backups')}</Table.Td>
                  <Table.Td><CronText cron={schedule.spec.cron} /></Table.Td>
                  <Table.Td>{schedule.spec.retain}</Table.Td>
                  <Table.Td>
                    <Group gap={6} justify="flex-end" wrap="nowrap">
                      {can('update', kinds.schedules) && <Button size="compact-sm" variant="subtle" onClick={() => setSuspended(schedule, !isSuspended(schedule))}>{isSuspended(schedule) ? t('detail.resume') : t('detail.suspend')}</Button>}
                      {can('delete', kinds.schedules) && <Button size="compact-sm" variant="subtle" color="red" onClick={() => remove(schedule)}>{t('common.delete')}</Button>}
                    </Group>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </States>
    </Card>
  );
}

function remove(schedule: ScheduleVMBackup): void {
  ask({
    title: t('detail.deleteKept', { name: schedule.metadata.name }),
    body: t('detail.deleteScheduleHelp'),
    confirm: t('common.delete'),
    dangerous: true,
    run: () => deleteObject(kinds.schedules, schedule),
  });
}

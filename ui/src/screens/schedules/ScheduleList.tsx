import { Button } from '@mantine/core';
import { IconCalendarTime, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { ScheduleVMBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { ageColumn, nameColumn, namespaceColumn } from '@/parts/kind/columns';
import { KindList } from '@/parts/kind/KindList';
import { useMayCreate } from '@/parts/kind/rights';
import type { Column, Facet } from '@/parts/table/columns';
import type { ScheduleState } from './schedule';
import { machineOf, stateOf, typeOf } from './schedule';
import { CronText, nextOf, NextTime, ScheduleStateCell } from './ScheduleCells';
import { ScheduleDialog } from './ScheduleDialog';
import { ScheduleItems } from './ScheduleMenu';
import { cronInWords } from './words';

export function Screen() {
  const columns = useMemo(() => scheduleColumns(), []);
  const facets = useMemo(() => scheduleFacets(), []);
  return (
    <KindList
      kind={kinds.schedules}
      area="/schedules"
      title={t('schedules.title')}
      icon={IconCalendarTime}
      columns={columns}
      facets={facets}
      emptyTitle={t('detail.noSchedules')}
      emptyHelp={t('detail.noSchedulesHelp')}
      create={<CreateButton />}
      menu={scheduleMenu}
      deleteHelp={t('detail.deleteScheduleHelp')}
    />
  );
}

const scheduleMenu = (schedule: ScheduleVMBackup) => <ScheduleItems schedule={schedule} />;

function CreateButton() {
  const may = useMayCreate(kinds.schedules);
  return may ? <Button leftSection={<IconPlus size={17} />} onClick={() => openDialog((close) => <ScheduleDialog onClose={close} />)}>{t('schedules.create')}</Button> : null;
}

function scheduleColumns(): Column<ScheduleVMBackup>[] {
  return [
    nameColumn('/schedules'),
    { id: 'state', title: t('common.state'), value: (schedule) => t(`schedules.${stateOf(schedule)}`), cell: (schedule) => <ScheduleStateCell schedule={schedule} />, width: '130px', phone: true },
    { id: 'machine', title: t('schedules.machine'), value: machineOf, cell: (schedule) => <Link to={`/machines/${schedule.metadata.namespace}/${machineOf(schedule)}`}>{machineOf(schedule)}</Link> },
    namespaceColumn(),
    { id: 'type', title: t('common.type'), value: (schedule) => t(`schedules.${typeOf(schedule)}`), width: '130px' },
    { id: 'when', title: t('forms.cron'), value: (schedule) => `${schedule.spec.cron} ${cronInWords(schedule.spec.cron) ?? ''}`, cell: (schedule) => <CronText cron={schedule.spec.cron} />, width: 'minmax(170px, 2fr)' },
    { id: 'next', title: t('schedules.next'), value: (schedule) => nextOf(schedule, Date.now()), cell: (schedule) => <NextTime schedule={schedule} />, width: '120px', unsearched: true },
    { id: 'retain', title: t('detail.retain'), value: (schedule) => schedule.spec.retain, width: '90px', align: 'end', unsearched: true },
    { id: 'failures', title: t('schedules.failed'), value: (schedule) => schedule.status?.failure ?? 0, width: '90px', align: 'end', unsearched: true, hidden: true },
    { ...ageColumn(), hidden: true },
  ];
}

function scheduleFacets(): Facet<ScheduleVMBackup>[] {
  return [
    { id: 'state', title: t('common.state'), values: (schedule) => [stateOf(schedule)], label: (state) => t(`schedules.${state as ScheduleState}`) },
    { id: 'type', title: t('common.type'), values: (schedule) => [typeOf(schedule)], label: (type) => t(type === 'snapshot' ? 'schedules.snapshot' : 'schedules.backup') },
    { id: 'machine', title: t('schedules.machine'), values: (schedule) => [machineOf(schedule)] },
  ];
}

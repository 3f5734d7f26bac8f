import { Alert, Button, List } from '@mantine/core';
import { IconCamera, IconPlayerPlay } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useCollection } from '@/api/collections';
import type { ScheduleVMBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { KindDetail } from '@/parts/kind/KindDetail';
import { useMayDo } from '@/parts/kind/rights';
import { Card } from '@/parts/Page';
import { exact, useNow } from '@/parts/Time';
import { KeptTable } from '@/screens/backups/KeptTable';
import { nextTimes, parseCron } from './cron';
import { isSuspended, machineOf, scheduleLabel, stateOf, suspendedWhy, typeOf } from './schedule';
import { CronText, NextTime, ScheduleStateCell, setSuspended } from './ScheduleCells';
import { ScheduleItems } from './ScheduleMenu';

export function Screen() {
  return (
    <KindDetail
      kind={kinds.schedules}
      area="/schedules"
      parent={t('schedules.title')}
      meta={(schedule) => <ScheduleStateCell schedule={schedule} />}
      facts={(schedule) => [
        [t('schedules.machine'), <Link key="machine" to={`/machines/${schedule.metadata.namespace}/${machineOf(schedule)}`}>{machineOf(schedule)}</Link>],
        [t('common.type'), t(`schedules.${typeOf(schedule)}`)],
        [t('forms.cron'), <CronText key="cron" cron={schedule.spec.cron} />],
        [t('schedules.next'), <NextTime key="next" schedule={schedule} />],
        [t('detail.retain'), schedule.spec.retain],
        [t('schedules.failed'), t('schedules.failures', { count: schedule.status?.failure ?? 0, max: schedule.spec.maxFailure })],
      ]}
      body={(schedule) => <Body schedule={schedule} />}
      actions={(schedule) => <ResumeButton schedule={schedule} />}
      menu={(schedule) => <ScheduleItems schedule={schedule} />}
      deleteHelp={t('detail.deleteScheduleHelp')}
    />
  );
}

function ResumeButton({ schedule }: { schedule: ScheduleVMBackup }) {
  const may = useMayDo('update', kinds.schedules, schedule);
  if (!may || !isSuspended(schedule)) return null;
  return <Button leftSection={<IconPlayerPlay size={17} />} onClick={() => setSuspended(schedule, false)}>{t('detail.resume')}</Button>;
}

function Body({ schedule }: { schedule: ScheduleVMBackup }) {
  const { namespace = '', uid = '' } = schedule.metadata;
  const made = useCollection(kinds.backups, { namespace, labelSelector: `${scheduleLabel}=${uid}` });
  const state = stateOf(schedule);
  return (
    <>
      {state === 'gaveUp' && <Alert color="red" title={t('schedules.gaveUp')}>{suspendedWhy(schedule)} {t('schedules.gaveUpHelp')}</Alert>}
      {state === 'failing' && <Alert color="yellow" title={t('schedules.failing')}>{t('schedules.failingHelp')}</Alert>}
      {!isSuspended(schedule) && <Upcoming cron={schedule.spec.cron} />}
      <Card title={t('schedules.made')}>
        <KeptTable snapshot={made} empty={<Blank icon={IconCamera} title={t('schedules.nothingMade')} text={t('schedules.nothingMadeHelp')} />} />
      </Card>
    </>
  );
}

const shown = 4;

function Upcoming({ cron }: { cron: string }) {
  const now = useNow();
  const minute = Math.floor(now / 60_000) * 60_000;
  const times = useMemo(() => {
    const parsed = parseCron(cron);
    return parsed ? nextTimes(parsed, minute, shown) : [];
  }, [cron, minute]);
  if (times.length === 0) return null;
  return <Card title={t('schedules.upcoming')}><List size="sm">{times.map((time) => <List.Item key={time}>{exact(time)}</List.Item>)}</List></Card>;
}

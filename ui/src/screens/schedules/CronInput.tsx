import { Select, Stack, Text, TextInput } from '@mantine/core';
import { useState } from 'react';
import { t } from '@/i18n';
import { exact, useNow } from '@/parts/Time';
import { nextTimes, parseCron } from './cron';
import { cronInWords } from './words';

const own = 'own';
const usual = [
  { cron: '0 * * * *', label: 'forms.cronHourly' },
  { cron: '0 2 * * *', label: 'forms.cronDaily' },
  { cron: '0 3 * * 0', label: 'forms.cronWeekly' },
  { cron: '0 4 1 * *', label: 'forms.cronMonthly' },
] as const;

/** When something is due: one of the usual times, or one's own; always said in words, with the next time. */
export function CronInput({ value, onChange, error }: { value: string; onChange: (cron: string) => void; error?: string | undefined }) {
  const [free, setFree] = useState(() => !usual.some(({ cron }) => cron === value));
  const now = useNow();
  const parsed = parseCron(value);
  const words = cronInWords(value);
  const next = parsed ? nextTimes(parsed, now, 1)[0] : undefined;
  const choose = (chosen: string | null) => {
    setFree(chosen === own);
    if (chosen && chosen !== own) onChange(chosen);
  };
  const problem = error ?? (free && value.trim() !== '' && !parsed ? t('schedules.badCron') : undefined);
  return (
    <Stack gap={6}>
      <Select label={t('forms.cron')} allowDeselect={false} data={[...usual.map(({ cron, label }) => ({ value: cron, label: t(label) })), { value: own, label: t('forms.cronOwn') }]} value={free ? own : value} onChange={choose} error={free ? undefined : problem} />
      {free && <TextInput aria-label={t('forms.cron')} description={t('forms.cronHelp')} spellCheck={false} autoComplete="off" value={value} onChange={(event) => onChange(event.currentTarget.value)} error={problem} />}
      {words && (
        <Text size="sm" c="dimmed" role="status">
          {words}. {next === undefined ? t('schedules.neverDue') : t('schedules.nextAt', { time: exact(next) })}
        </Text>
      )}
    </Stack>
  );
}

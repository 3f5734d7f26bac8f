import { Center, SegmentedControl, SimpleGrid, Text } from '@mantine/core';
import { useState } from 'react';
import { asApiError } from '@/api/errors';
import { formatBytes } from '@/api/quantity';
import type { UsageHistory, Window } from '@/api/usage';
import { useUsageHistory } from '@/api/usage';
import type { Key } from '@/i18n';
import { language, t } from '@/i18n';
import { Card } from '../Page';
import { LazyChart } from './LazyChart';

interface Panel {
  title: Key;
  series: { of: string; label: Key; color: string }[];
  format: (value: number) => string;
  capacity?: string;
}

const first = 'var(--croft-ok)';
const second = 'var(--croft-busy)';
const bytes = (value: number) => formatBytes(value, language());
const bytesPerSecond = (value: number) => `${formatBytes(value, language())}/s`;
const cores = (value: number) => new Intl.NumberFormat(language(), { maximumFractionDigits: 2 }).format(value);

const panels: Panel[] = [
  { title: 'charts.cpu', series: [{ of: 'cpuCores', label: 'charts.cpu', color: first }], format: cores, capacity: 'cpuCores' },
  { title: 'charts.memory', series: [{ of: 'memoryBytes', label: 'charts.memory', color: first }, { of: 'guestMemoryBytes', label: 'charts.guestMemory', color: second }], format: bytes, capacity: 'memoryBytes' },
  { title: 'charts.disk', series: [{ of: 'diskReadBytesPerSecond', label: 'charts.read', color: first }, { of: 'diskWriteBytesPerSecond', label: 'charts.write', color: second }], format: bytesPerSecond },
  { title: 'charts.network', series: [{ of: 'networkReceiveBytesPerSecond', label: 'charts.received', color: first }, { of: 'networkTransmitBytesPerSecond', label: 'charts.sent', color: second }], format: bytesPerSecond },
];

/** What a node or a machine uses: processors, memory, disks and network over time. */
export function UsageCharts({ target, title }: { target: string; title?: string }) {
  const [window, setWindow] = useState<Window>('10m');
  const { data, error } = useUsageHistory(target, window);
  return (
    <Card
      title={title ?? t('charts.title')}
      actions={<SegmentedControl size="xs" value={window} onChange={(value) => setWindow(value as Window)} data={[{ value: '10m', label: t('charts.tenMinutes') }, { value: '24h', label: t('charts.day') }]} />}
    >
      {error && !data ? <Text c="dimmed" size="sm">{t('charts.unavailable', { message: asApiError(error).message })}</Text> : null}
      {data && data.times.length < 2 && <Center mih={120}><Text c="dimmed" size="sm">{t('charts.empty')}</Text></Center>}
      {data && data.times.length >= 2 && (
        <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="xl">
          {panels.map((panel) => <UsagePanel key={panel.title} panel={panel} history={data} />)}
        </SimpleGrid>
      )}
    </Card>
  );
}

function UsagePanel({ panel, history }: { panel: Panel; history: UsageHistory }) {
  const series = panel.series
    .map(({ of, label, color }) => ({ label: t(label), values: history.series[of] ?? [], color }))
    .filter(({ values }) => values.some((value) => value !== null));
  if (series.length === 0) return null;
  const top = panel.capacity ? history.capacity[panel.capacity] : undefined;
  return (
    <div>
      <Text size="sm" fw={560} mb={4}>{t(panel.title)}</Text>
      <LazyChart times={history.times} series={series} format={panel.format} max={top} label={t(panel.title)} binary={panel.format !== cores} />
    </div>
  );
}

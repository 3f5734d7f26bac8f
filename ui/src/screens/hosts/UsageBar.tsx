import { Progress, Text } from '@mantine/core';

interface UsageBarProps {
  label: string;
  used: number | undefined;
  total: number | undefined;
  format: (value: number) => string;
}

/** How much of something is used, as a bar with figures. */
export function UsageBar({ label, used, total, format }: UsageBarProps) {
  if (total === undefined) return <>–</>;
  const percent = used === undefined || total === 0 ? 0 : Math.min(100, (100 * used) / total);
  return (
    <div style={{ width: '100%', maxWidth: 190 }}>
      <Text size="xs" c="dimmed" lh={1.35} style={{ whiteSpace: 'nowrap' }}>{used === undefined ? format(total) : `${format(used)} / ${format(total)}`}</Text>
      <Progress size="xs" value={percent} color={percent > 90 ? 'red' : percent > 75 ? 'yellow' : 'croft'} aria-label={label} />
    </div>
  );
}

import { Tooltip } from '@mantine/core';
import classes from './StatusBadge.module.css';

export type Tone = 'ok' | 'busy' | 'warn' | 'bad' | 'idle';

/** A state as a word with a coloured dot: never by colour alone. */
export function StatusBadge({ tone, label, hint }: { tone: Tone; label: string; hint?: string }) {
  const badge = <span className={classes.badge} data-tone={tone}>{label}</span>;
  return hint ? <Tooltip label={hint} multiline maw={420}>{badge}</Tooltip> : badge;
}

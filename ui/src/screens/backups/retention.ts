/** What a machine's annotations say about its backups: how many stay, and for how long. */

export const countAnnotation = 'croft.io/keep-backups';
export const periodAnnotation = 'croft.io/keep-backups-for';

export type PeriodUnit = 'h' | 'd' | 'w';

export interface Retention {
  count: number | null;
  period: number | null;
  unit: PeriodUnit;
}

export function retentionOf(annotations: Record<string, string> | undefined): Retention {
  const count = Number(annotations?.[countAnnotation]);
  const period = /^(\d+)([hdw])$/.exec(annotations?.[periodAnnotation] ?? '');
  return { count: count > 0 ? count : null, period: period ? Number(period[1]) : null, unit: (period?.[2] ?? 'd') as PeriodUnit };
}

/** As a merge patch takes them: what is null goes. */
export function annotationsOf({ count, period, unit }: Retention): Record<string, string | null> {
  return { [countAnnotation]: count === null ? null : String(count), [periodAnnotation]: period === null ? null : `${period}${unit}` };
}

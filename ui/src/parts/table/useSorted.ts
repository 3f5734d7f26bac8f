import { useMemo } from 'react';
import type { Column } from './columns';
import { compareValues, naturalKey, perRow } from './columns';
import type { Sorting } from './useTableState';

/** The rows in order. What a row is sorted by is computed once for as long as the row is the same. */
export function useSorted<T extends object>(rows: readonly T[], columns: readonly Column<T>[], sorting: Sorting | null): readonly T[] {
  const column = columns.find((each) => each.id === sorting?.column);
  const descending = sorting?.descending ?? false;
  const keyOf = useMemo(
    () =>
      perRow((row: T) => {
        const value = column?.value(row);
        return { value: typeof value === 'string' ? naturalKey(value) : value };
      }),
    [column],
  );
  return useMemo(() => {
    if (!column) return rows;
    const keyed = rows.map((row) => ({ row, key: keyOf(row).value }));
    keyed.sort((a, b) => {
      const missing = Number(isMissing(a.key)) - Number(isMissing(b.key));
      if (missing !== 0) return missing;
      return descending ? compareValues(b.key, a.key) : compareValues(a.key, b.key);
    });
    return keyed.map((each) => each.row);
  }, [rows, column, descending, keyOf]);
}

/** Rows without a value come last either way. */
function isMissing(value: unknown): boolean {
  return value === undefined || value === null || value === '';
}

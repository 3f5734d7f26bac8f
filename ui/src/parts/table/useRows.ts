import { useDeferredValue, useMemo } from 'react';
import type { Column, Facet } from './columns';
import { perRow, searchText, wordsOf } from './columns';

export interface Narrowing {
  query: string;
  /** The chosen values of each facet; any of them will do. */
  chosen: Record<string, readonly string[]>;
}

/** The rows that are searched and filtered for. Typing stays quick: the rows follow when there is time. */
export function useRows<T extends object>(rows: readonly T[], columns: readonly Column<T>[], facets: readonly Facet<T>[], narrowing: Narrowing): readonly T[] {
  const query = useDeferredValue(narrowing.query);
  const text = useMemo(() => perRow(searchText(columns)), [columns]);
  return useMemo(() => {
    const words = wordsOf(query);
    const active = facets.filter((facet) => (narrowing.chosen[facet.id]?.length ?? 0) > 0);
    if (words.length === 0 && active.length === 0) return rows;
    return rows.filter(
      (row) =>
        words.every((word) => text(row).includes(word)) &&
        active.every((facet) => facet.values(row).some((value) => narrowing.chosen[facet.id]?.includes(value))),
    );
  }, [rows, query, facets, narrowing.chosen, text]);
}

import { useCallback, useEffect, useMemo, useState } from 'react';
import { useQueryState } from '@/app/address';
import { usePreference } from '@/app/preferences';
import type { Column, Facet } from './columns';
import type { Narrowing } from './useRows';

export interface Sorting {
  column: string;
  descending: boolean;
}

const typingMs = 300;

/** Search, filters and order are part of the address, so that a link shows the same; columns are a habit of the user. */
export function useTableState<T>(id: string, columns: readonly Column<T>[], facets: readonly Facet<T>[]) {
  const [params, setParams] = useQueryState();
  const [query, setQuery] = useState(params['q'] ?? '');
  const [shown, setShown] = usePreference<Record<string, boolean>>(`columns.${id}`, {});

  useEffect(() => {
    if ((params['q'] ?? '') === query) return;
    const timer = setTimeout(() => setParams({ q: query }), typingMs);
    return () => clearTimeout(timer);
    // Only typing sets the address; the address is read once.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [query]);

  const chosenText = facets.map((facet) => params[facet.id] ?? '').join('\u0000');
  const chosen = useMemo(() => {
    const texts = chosenText.split('\u0000');
    return Object.fromEntries(facets.map((facet, index) => [facet.id, (texts[index] ?? '').split('~').filter(Boolean)]));
  }, [chosenText, facets]);

  const choose = useCallback((facet: string, values: readonly string[]) => setParams({ [facet]: values.join('~') }), [setParams]);
  const clear = useCallback(() => {
    setQuery('');
    setParams({ q: undefined, ...Object.fromEntries(facets.map((facet) => [facet.id, undefined])) });
  }, [facets, setParams]);

  const sort = params['sort'] ?? '';
  const sorting = useMemo<Sorting | null>(() => (sort ? { column: sort.replace(/^-/, ''), descending: sort.startsWith('-') } : null), [sort]);
  const sortBy = useCallback(
    (column: string) => {
      const next = sort === column ? `-${column}` : sort === `-${column}` ? undefined : column;
      setParams({ sort: next });
    },
    [sort, setParams],
  );

  const isShown = useCallback((column: Column<T>) => shown[column.id] ?? !column.hidden, [shown]);
  const visible = useMemo(() => columns.filter(isShown), [columns, isShown]);
  const toggleColumn = useCallback((column: Column<T>) => setShown({ ...shown, [column.id]: !isShown(column) }), [shown, isShown, setShown]);
  const narrowing: Narrowing = useMemo(() => ({ query, chosen }), [query, chosen]);

  return { query, setQuery, narrowing, choose, clear, sorting, sortBy, visible, isShown, toggleColumn };
}

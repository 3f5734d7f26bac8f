import { useCallback, useMemo, useState } from 'react';

/** Which rows are ticked, by key. What is no longer shown counts no more: nobody deletes what he does not see. */
export function useSelection<T>(rows: readonly T[], keyOf: (row: T) => string) {
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const [anchor, setAnchor] = useState<string | null>(null);

  const selected = useMemo(() => (ticked.size === 0 ? [] : rows.filter((row) => ticked.has(keyOf(row)))), [rows, ticked, keyOf]);

  const clear = useCallback(() => setTicked(new Set()), []);
  const selectAll = useCallback(() => setTicked(new Set(rows.map(keyOf))), [rows, keyOf]);

  /** With shift, everything between this row and the one ticked before. */
  const toggle = useCallback(
    (ordered: readonly T[], key: string, range: boolean) => {
      setTicked((before) => {
        const next = new Set(before);
        const add = !before.has(key);
        for (const each of range && anchor ? between(ordered.map(keyOf), anchor, key) : [key]) {
          if (add) next.add(each);
          else next.delete(each);
        }
        return next;
      });
      setAnchor(key);
    },
    [anchor, keyOf],
  );

  return { ticked, selected, toggle, clear, selectAll };
}

function between(keys: readonly string[], a: string, b: string): readonly string[] {
  const [from, to] = [keys.indexOf(a), keys.indexOf(b)].sort((x, y) => x - y);
  return from === undefined || to === undefined || from < 0 ? [b] : keys.slice(from, to + 1);
}

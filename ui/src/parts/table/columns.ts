import type { ReactNode } from 'react';

export type CellValue = string | number | null | undefined;

/** One column of a table: how to sort, search, export and draw it. */
export interface Column<T> {
  id: string;
  title: string;
  /** What is sorted by, searched in and written to the CSV. */
  value: (row: T) => CellValue;
  /** What is drawn; the value itself if there is none. */
  cell?: (row: T) => ReactNode;
  /** A track of CSS grid, as `120px` or `minmax(160px, 2fr)`. */
  width?: string;
  align?: 'start' | 'end';
  /** Shown on a phone too. */
  phone?: boolean;
  /** Not shown until it is asked for. */
  hidden?: boolean;
  /** For numbers that mean nothing as text, as times: not searched in. */
  unsearched?: boolean;
}

/** What rows can be narrowed down by. A row may have several of its values, as labels. */
export interface Facet<T> {
  id: string;
  title: string;
  values: (row: T) => readonly string[];
  /** How a value is called on the page. */
  label?: (value: string) => string;
}

/** "web-9" comes before "web-10". */
export function naturalKey(text: string): string {
  return text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, '0'));
}

export function compareValues(a: CellValue, b: CellValue): number {
  if (a === b) return 0;
  if (a === null || a === undefined || a === '') return 1;
  if (b === null || b === undefined || b === '') return -1;
  return a < b ? -1 : 1;
}

/** Remembers what is computed of a row for as long as the very row is there. */
export function perRow<T extends object, R>(compute: (row: T) => R): (row: T) => R {
  const known = new WeakMap<T, R>();
  return (row) => {
    let result = known.get(row);
    if (result === undefined) {
      result = compute(row);
      known.set(row, result);
    }
    return result;
  };
}

export function searchText<T>(columns: readonly Column<T>[]): (row: T) => string {
  const searched = columns.filter((column) => !column.unsearched);
  return (row) => searched.map((column) => column.value(row) ?? '').join('\u0000').toLowerCase();
}

/** Every word must be somewhere in the row. */
export function wordsOf(query: string): string[] {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}

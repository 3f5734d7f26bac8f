import type { Column } from './columns';

export function toCsv<T>(columns: readonly Column<T>[], rows: readonly T[]): string {
  const lines = [columns.map((column) => column.title), ...rows.map((row) => columns.map((column) => String(column.value(row) ?? '')))];
  return lines.map((line) => line.map(quoted).join(',')).join('\r\n');
}

/** A cell that a spreadsheet would take for a formula is a way to attack whoever opens the file. */
function quoted(text: string): string {
  const harmless = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

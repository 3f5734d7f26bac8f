import { useVirtualizer } from '@tanstack/react-virtual';
import { memo, useRef, type MouseEvent, type ReactNode } from 'react';
import { t } from '@/i18n';
import type { Column } from './columns';
import classes from './DataTable.module.css';

interface ScrollerProps<T> {
  id: string;
  head: ReactNode;
  minWidth: number;
  rows: readonly T[];
  keyOf: (row: T) => string;
  nameOf: (row: T) => string;
  columns: readonly Column<T>[];
  template: string;
  ticked: ReadonlySet<string>;
  tick: ((key: string, range: boolean) => void) | null;
  menu: ((row: T) => ReactNode) | undefined;
  onOpen: ((row: T) => void) | undefined;
}

const rowHeight = 46;

/** The part of a table that scrolls. Each step of the wheel draws it anew, and nothing around it: the head comes ready-made. */
export function Scroller<T extends object>({ id, head, minWidth, rows, keyOf, nameOf, columns, template, ticked, tick, menu, onOpen }: ScrollerProps<T>) {
  const scroller = useRef<HTMLDivElement>(null);
  // All rows are of one height: the virtualizer need not tell them apart, and so does no work for those that are not shown.
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 10,
  });
  return (
    // A part that scrolls must be reachable by keyboard.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={classes.scroller} ref={scroller} tabIndex={0} role="region" aria-label={id}>
      <div className={classes.table} style={{ minWidth }} role="table" aria-rowcount={rows.length + 1} aria-label={id}>
        <div role="rowgroup">{head}</div>
        <div className={classes.body} role="rowgroup" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            const key = keyOf(row);
            return (
              <Row
                key={key}
                row={row}
                rowKey={key}
                name={nameOf(row)}
                columns={columns}
                template={template}
                index={item.index}
                top={item.start}
                ticked={ticked.has(key)}
                tick={tick}
                menu={menu}
                onOpen={onOpen}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

interface RowProps<T> {
  row: T;
  rowKey: string;
  name: string;
  columns: readonly Column<T>[];
  template: string;
  index: number;
  top: number;
  ticked: boolean;
  tick: ((key: string, range: boolean) => void) | null;
  menu: ((row: T) => ReactNode) | undefined;
  onOpen: ((row: T) => void) | undefined;
}

function PlainRow<T>({ row, rowKey, name, columns, template, index, top, ticked, tick, menu, onOpen }: RowProps<T>) {
  // For the mouse alone: whoever uses the keyboard has the same in the menu of the row.
  const open = onOpen && ((event: MouseEvent<HTMLElement>) => {
    if (!(event.target as HTMLElement).closest('a, button, input')) onOpen(row);
  });
  return (
    // oxlint-disable-next-line jsx-a11y/click-events-have-key-events
    <div className={classes.row} role="row" onClick={open} data-opens={onOpen && true} aria-rowindex={index + 2} data-selected={ticked || undefined} style={{ gridTemplateColumns: template, transform: `translateY(${top}px)` }}>
      {tick && (
        <div className={classes.tick} role="cell">
          {/* A plain one: there are many, and they come and go while the table is scrolled. */}
          <input type="checkbox" className={classes.checkbox} aria-label={t('common.selectRow', { name })} checked={ticked} onChange={(event) => tick(rowKey, (event.nativeEvent as globalThis.MouseEvent).shiftKey)} />
        </div>
      )}
      {columns.map((column, at) => (
        <div key={column.id} className={`${classes.cell} ${at === 0 ? classes.main : ''}`} role="cell" data-align={column.align}>
          {column.cell ? column.cell(row) : (column.value(row) ?? '–')}
        </div>
      ))}
      {menu && <div className={classes.menu} role="cell">{menu(row)}</div>}
    </div>
  );
}

const Row = memo(PlainRow) as typeof PlainRow;

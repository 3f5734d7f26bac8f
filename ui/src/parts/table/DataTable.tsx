import { Button, Checkbox } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { IconArrowDown, IconArrowUp, IconFilterOff } from '@tabler/icons-react';
import { useCallback, useMemo, useRef, useState, type ReactNode } from 'react';
import type { Snapshot } from '@/api/collection';
import { t } from '@/i18n';
import { Blank } from '../Blank';
import { saveText } from '../saveFile';
import { States } from '../States';
import type { Column, Facet } from './columns';
import { toCsv } from './csv';
import classes from './DataTable.module.css';
import { Scroller } from './Scroller';
import { FacetFilter, SearchField, TableMenu } from './Toolbar';
import { useRows } from './useRows';
import { useSorted } from './useSorted';
import { useSelection } from './useSelection';
import { useTableState } from './useTableState';

interface DataTableProps<T extends object> {
  /** Names the table for what the user chose for it. */
  id: string;
  /** Where the rows come from, for loading, errors and so on. */
  snapshot: Snapshot<unknown>;
  rows: readonly T[];
  /** The first column names the row. Columns and facets must stay the same objects between renders. */
  columns: readonly Column<T>[];
  facets?: readonly Facet<T>[];
  keyOf: (row: T) => string;
  nameOf: (row: T) => string;
  empty: ReactNode;
  /** What can be done with the ticked rows. */
  bulk?: (selected: readonly T[], clear: () => void) => ReactNode;
  /** The menu at the end of each row. */
  menu?: (row: T) => ReactNode;
  /** Without a field to search in the rows, for tables whose rows are searched by the server. */
  searched?: boolean;
  /** A click on a row, beside its links and buttons. */
  onOpen?: (row: T) => void;
  /** Sorted like this until the user wants it otherwise. */
  defaultSort?: { column: string; descending: boolean };
}

const phoneWidth = 640;
const noFacets: readonly never[] = [];
const noRows: readonly never[] = [];
const noValues: readonly string[] = [];

/** The one table of the page: live, for ten rows as for ten thousand. */
export function DataTable<T extends object>(props: DataTableProps<T>) {
  const { id, snapshot, rows, columns, keyOf, nameOf, bulk, menu } = props;
  const facets: readonly Facet<T>[] = props.facets ?? noFacets;
  const state = useTableState(id, columns, facets);
  const { ref: frame, width } = useElementSize();
  const [openFacet, setOpenFacet] = useState<string | null>(null);

  const sorting = state.sorting ?? props.defaultSort ?? null;
  // Sorted first, narrowed then: typing never waits for thousands of rows to be put in order.
  const sorted = useSorted(rows, columns, sorting);
  const matching = useRows(sorted, columns, facets, state.narrowing);
  const selection = useSelection(matching, keyOf);

  const narrow = width > 0 && width < phoneWidth;
  const visible = useMemo(() => (narrow ? state.visible.filter((column, index) => index === 0 || column.phone) : state.visible), [narrow, state.visible]);
  const tracks = [bulk && '40px', ...visible.map((column) => column.width ?? 'minmax(110px, 1fr)'), menu && '52px'].filter((track) => track !== undefined);
  const template = tracks.join(' ');
  const narrowest = tracks.reduce((sum, track) => sum + Number(/\d+/.exec(track)?.[0] ?? 0), 0);

  const ordered = useRef<readonly T[]>(matching);
  ordered.current = matching;
  const exportRows = useCallback(() => saveText(`${id}.csv`, toCsv(visible, ordered.current), 'text/csv'), [id, visible]);
  const { toggle } = selection;
  const tick = useCallback((key: string, range: boolean) => toggle(ordered.current, key, range), [toggle]);

  const everything = matching.length > 0 && selection.selected.length === matching.length;
  const head = (
    <div className={classes.head} role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
      {bulk && (
        <div className={classes.tick} role="columnheader">
          <Checkbox size="xs" aria-label={t('common.selectAll')} checked={everything} indeterminate={!everything && selection.selected.length > 0} onChange={everything ? selection.clear : selection.selectAll} />
        </div>
      )}
      {visible.map((column) => (
        <HeadCell key={column.id} column={column} sorting={sorting} onSort={state.sortBy} />
      ))}
      {menu && <div className={classes.menu} role="columnheader" aria-label={t('common.actions')} />}
    </div>
  );
  return (
    <div className={classes.frame} ref={frame}>
      <States snapshot={snapshot} empty={props.empty}>
        <div className={classes.toolbar} role="toolbar" aria-label={t('common.filter')}>
          {bulk && selection.selected.length > 0 ? (
            <div className={classes.bulk}>
              <strong>{t('common.selected', { count: selection.selected.length })}</strong>
              {bulk(selection.selected, selection.clear)}
              <Button variant="subtle" size="xs" color="gray" onClick={selection.clear}>{t('common.clearSelection')}</Button>
            </div>
          ) : (
            <>
              {props.searched !== false && <SearchField value={state.query} onChange={state.setQuery} />}
              {facets.map((facet) => (
                <FacetFilter
                  key={facet.id}
                  facet={facet}
                  rows={openFacet === facet.id ? rows : noRows}
                  chosen={state.narrowing.chosen[facet.id] ?? noValues}
                  onChange={state.choose}
                  opened={openFacet === facet.id}
                  onOpen={setOpenFacet}
                />
              ))}
            </>
          )}
          <span className={classes.count} role="status">
            {matching.length === rows.length ? t('common.rows', { count: rows.length }) : t('common.rowsOf', { shown: matching.length, total: rows.length })}
          </span>
          <TableMenu columns={columns} isShown={state.isShown} onToggle={state.toggleColumn} onExport={exportRows} />
        </div>
        {matching.length === 0 && rows.length > 0 ? (
          <Blank icon={IconFilterOff} title={t('common.noMatch')} text={t('common.noMatchHelp')}>
            <Button variant="default" onClick={state.clear}>{t('common.clearFilters')}</Button>
          </Blank>
        ) : (
          <Scroller
            id={id}
            head={head}
            minWidth={narrowest}
            rows={matching}
            keyOf={keyOf}
            nameOf={nameOf}
            columns={visible}
            template={template}
            ticked={selection.ticked}
            tick={bulk ? tick : null}
            menu={menu}
            onOpen={props.onOpen}
          />
        )}
      </States>
    </div>
  );
}

function HeadCell<T>({ column, sorting, onSort }: { column: Column<T>; sorting: { column: string; descending: boolean } | null; onSort: (column: string) => void }) {
  const active = sorting?.column === column.id ? sorting : null;
  const Arrow = active?.descending ? IconArrowDown : IconArrowUp;
  return (
    <div className={classes.cell} role="columnheader" data-align={column.align} aria-sort={active ? (active.descending ? 'descending' : 'ascending') : 'none'}>
      <button type="button" className={classes.sort} onClick={() => onSort(column.id)} aria-label={t('common.sortBy', { column: column.title })}>
        {column.title}
        {active && <Arrow size={14} aria-hidden />}
      </button>
    </div>
  );
}

import { ActionIcon, Button, Checkbox, Menu, Popover, ScrollArea, Stack, TextInput, Tooltip } from '@mantine/core';
import { IconColumns3, IconDownload, IconFilter, IconSearch, IconX } from '@tabler/icons-react';
import { memo, useMemo } from 'react';
import { t } from '@/i18n';
import type { Column, Facet } from './columns';
import classes from './DataTable.module.css';

// These are drawn anew only when they change themselves, not with each change of the rows, which may come ten times a second.

function PlainSearchField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <TextInput
      className={classes.search}
      type="search"
      aria-label={t('common.search')}
      placeholder={t('common.search')}
      leftSection={<IconSearch size={16} aria-hidden />}
      rightSection={value && <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t('common.clearSearch')} onClick={() => onChange('')}><IconX size={14} /></ActionIcon>}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}

export const SearchField = memo(PlainSearchField);

interface FacetValuesProps<T> {
  facet: Facet<T>;
  /** They are counted only while somebody looks. */
  rows: readonly T[];
  chosen: readonly string[];
  onChange: (facet: string, values: readonly string[]) => void;
}

interface FacetFilterProps<T> extends FacetValuesProps<T> {
  opened: boolean;
  onOpen: (facet: string | null) => void;
}

function PlainFacetFilter<T>({ opened, onOpen, ...values }: FacetFilterProps<T>) {
  const { facet, chosen } = values;
  return (
    <Popover position="bottom-start" shadow="md" opened={opened} onChange={(open) => onOpen(open ? facet.id : null)}>
      <Popover.Target>
        <Button onClick={() => onOpen(opened ? null : facet.id)} variant={chosen.length > 0 ? 'light' : 'default'} size="sm" px="sm" leftSection={<IconFilter size={15} aria-hidden />}>
          {facet.title}{chosen.length > 0 && `: ${chosen.map((value) => facet.label?.(value) ?? value).join(', ')}`}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <FacetValues {...values} />
      </Popover.Dropdown>
    </Popover>
  );
}

export const FacetFilter = memo(PlainFacetFilter) as typeof PlainFacetFilter;

function FacetValues<T>({ facet, rows, chosen, onChange }: FacetValuesProps<T>) {
  const counts = useMemo(() => {
    const found = new Map<string, number>();
    for (const row of rows) for (const value of facet.values(row)) found.set(value, (found.get(value) ?? 0) + 1);
    for (const value of chosen) if (!found.has(value)) found.set(value, 0);
    return [...found].sort(([a], [b]) => a.localeCompare(b));
  }, [rows, facet, chosen]);
  if (counts.length === 0) return <>{t('common.none')}</>;
  return (
    <ScrollArea.Autosize mah={320} type="auto">
      <Stack gap="xs" pr="sm">
        {counts.map(([value, count]) => (
          <Checkbox
            key={value}
            size="sm"
            label={`${facet.label?.(value) ?? value} (${count})`}
            checked={chosen.includes(value)}
            onChange={(event) => onChange(facet.id, event.currentTarget.checked ? [...chosen, value] : chosen.filter((other) => other !== value))}
          />
        ))}
      </Stack>
    </ScrollArea.Autosize>
  );
}

interface TableMenuProps<T> {
  columns: readonly Column<T>[];
  isShown: (column: Column<T>) => boolean;
  onToggle: (column: Column<T>) => void;
  onExport: () => void;
}

function PlainTableMenu<T>({ columns, isShown, onToggle, onExport }: TableMenuProps<T>) {
  return (
    <>
      <Menu closeOnItemClick={false}>
        <Menu.Target>
          <Tooltip label={t('common.columns')}>
            <ActionIcon variant="default" size={36} aria-label={t('common.columns')}><IconColumns3 size={17} /></ActionIcon>
          </Tooltip>
        </Menu.Target>
        <Menu.Dropdown>
          {columns.slice(1).map((column) => (
            <Menu.CheckboxItem key={column.id} checked={isShown(column)} onChange={() => onToggle(column)}>{column.title}</Menu.CheckboxItem>
          ))}
        </Menu.Dropdown>
      </Menu>
      <Tooltip label={t('common.exportCsv')}>
        <ActionIcon variant="default" size={36} aria-label={t('common.exportCsv')} onClick={onExport}><IconDownload size={17} /></ActionIcon>
      </Tooltip>
    </>
  );
}

export const TableMenu = memo(PlainTableMenu) as typeof PlainTableMenu;

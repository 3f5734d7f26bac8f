import { ActionIcon, Button, Center, Drawer, Stack, Tooltip } from '@mantine/core';
import { IconChevronDown, IconCode, IconFilterOff, IconHistory } from '@tabler/icons-react';
import { useMemo, useState } from 'react';
import type { AuditEvent } from '@/api/audit';
import type { Snapshot } from '@/api/collection';
import { asApiError } from '@/api/errors';
import { useQueryState } from '@/app/address';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { Facts } from '@/parts/Facts';
import { CopyableCode } from '@/parts/form/Preview';
import { PageHead } from '@/parts/Page';
import { DataTable } from '@/parts/table/DataTable';
import { exact } from '@/parts/Time';
import { AuditFilters } from './AuditFilters';
import { auditColumns, WhatCell, WhoCell } from './columns';
import { keyOf, subjectOf, whoOf } from './entry';
import { filtersOf, queryOf } from './filters';
import { useAuditLog } from './useAuditLog';

/** Who did what, as the server has written it down. */
export function Screen() {
  const [params, change] = useQueryState();
  const { text, user, verb, failed, range } = filtersOf(params);
  const filters = useMemo(() => ({ text, user, verb, failed, range }), [text, user, verb, failed, range]);
  const { entries, pages } = useAuditLog(filters);
  const [open, setOpen] = useState<AuditEvent | null>(null);
  const columns = useMemo(() => auditColumns(), []);
  const users = useMemo(() => [...new Set(entries.map((event) => whoOf(event).name).filter(Boolean))].sort(), [entries]);

  const searching = pages.isPending || (entries.length === 0 && (pages.hasNextPage || pages.isFetching));
  const snapshot: Snapshot<AuditEvent> = {
    items: entries,
    phase: pages.error ? 'failed' : searching ? 'loading' : 'ready',
    error: pages.error && asApiError(pages.error),
  };
  const empty = queryOf(filters, 0)
    ? <Blank icon={IconFilterOff} title={t('common.noMatch')} text={t('audit.noMatchHelp')} />
    : <Blank icon={IconHistory} title={t('audit.emptyTitle')} text={t('audit.emptyHelp')} />;
  return (
    <>
      <PageHead title={t('audit.title')} />
      <AuditFilters filters={filters} users={users} change={change} />
      <DataTable
        id="audit"
        snapshot={snapshot}
        rows={entries}
        columns={columns}
        keyOf={keyOf}
        nameOf={subjectOf}
        empty={empty}
        searched={false}
        menu={(event) => (
          <Tooltip label={t('audit.show')}>
            <ActionIcon variant="subtle" color="gray" aria-label={t('audit.show')} onClick={() => setOpen(event)}><IconCode size={17} /></ActionIcon>
          </Tooltip>
        )}
        onOpen={setOpen}
      />
      {entries.length > 0 && pages.hasNextPage && (
        <Center mt="sm">
          <Button variant="default" leftSection={<IconChevronDown size={16} aria-hidden />} loading={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>{t('audit.older')}</Button>
        </Center>
      )}
      <Drawer opened={open !== null} onClose={() => setOpen(null)} position="right" size="xl" title={t('audit.entry')} closeButtonProps={{ 'aria-label': t('common.close') }}>
        {open && <EntryView event={open} />}
      </Drawer>
    </>
  );
}

function EntryView({ event }: { event: AuditEvent }) {
  return (
    <Stack>
      <Facts
        facts={[
          [t('audit.when'), exact(Date.parse(event.stageTimestamp))],
          [t('audit.who'), <WhoCell key="who" event={event} />],
          [t('audit.what'), <WhatCell key="what" event={event} />],
          [t('common.message'), event.responseStatus?.message],
          [t('audit.program'), event.userAgent],
        ]}
      />
      <CopyableCode text={JSON.stringify(event, null, 2)} />
    </Stack>
  );
}

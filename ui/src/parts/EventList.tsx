import { Table, Text } from '@mantine/core';
import { IconBell } from '@tabler/icons-react';
import { useMemo } from 'react';
import type { Snapshot } from '@/api/collection';
import { useCollection } from '@/api/collections';
import type { Event } from '@/api/core';
import { selecting } from '@/api/feed';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { Blank } from './Blank';
import { Card } from './Page';
import { States } from './States';
import { StatusBadge } from './StatusBadge';
import { Time } from './Time';

export function timeOf(event: Event): string | undefined {
  return event.lastTimestamp ?? event.eventTime ?? event.firstTimestamp ?? event.metadata.creationTimestamp;
}

/** Newest first. */
export function sortedEvents(events: readonly Event[]): Event[] {
  return [...events].sort((a, b) => (timeOf(b) ?? '').localeCompare(timeOf(a) ?? ''));
}

/** What happened to objects of one name, as a machine and its instance. */
export function EventsOf({ namespace, name }: { namespace: string; name: string }) {
  const snapshot = useCollection(kinds.events, { namespace, fieldSelector: selecting('involvedObject.name', name) });
  return <Card><EventTable snapshot={snapshot} /></Card>;
}

export function EventTable({ snapshot, withObject = false, limit = 200 }: { snapshot: Snapshot<Event>; withObject?: boolean; limit?: number }) {
  const events = useMemo(() => sortedEvents(snapshot.items).slice(0, limit), [snapshot.items, limit]);
  return (
    <States snapshot={snapshot} empty={<Blank icon={IconBell} title={t('common.noEvents')} text={t('common.noEventsHelp')} />}>
      <Table.ScrollContainer minWidth={480}>
        <Table verticalSpacing="xs" horizontalSpacing="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('common.lastSeen')}</Table.Th>
              {withObject && <Table.Th>{t('common.object')}</Table.Th>}
              <Table.Th>{t('common.reason')}</Table.Th>
              <Table.Th>{t('common.message')}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {events.map((event) => (
              <Table.Tr key={event.metadata.uid}>
                <Table.Td style={{ whiteSpace: 'nowrap' }}><Time at={timeOf(event)} /></Table.Td>
                {withObject && <Table.Td>{event.involvedObject?.kind} <b>{event.involvedObject?.name}</b></Table.Td>}
                <Table.Td><StatusBadge tone={event.type === 'Warning' ? 'warn' : 'idle'} label={event.reason ?? ''} /></Table.Td>
                <Table.Td>
                  <Text size="sm" style={{ overflowWrap: 'anywhere' }}>
                    {event.message}{(event.count ?? 1) > 1 && <Text span c="dimmed" size="sm"> {t('common.times', { count: event.count ?? 1 })}</Text>}
                  </Text>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </States>
  );
}

import { Table, Text } from '@mantine/core';
import { IconNetwork } from '@tabler/icons-react';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { Card } from '@/parts/Page';
import { States } from '@/parts/States';
import { StatusBadge } from '@/parts/StatusBadge';

/** The network cards of a host, and whatever else LinkMonitors look for. */
export function LinksTab({ node }: { node: string }) {
  const snapshot = useCollection(kinds.linkMonitors);
  const links = new Map(snapshot.items.flatMap((monitor) => monitor.status?.linkStatus?.[node] ?? []).map((link) => [link.name, link]));
  const items = [...links.values()].sort((a, b) => a.name.localeCompare(b.name));
  return (
    <Card>
      <States snapshot={{ ...snapshot, items }} empty={<Blank icon={IconNetwork} title={t('hosts.noLinks')} />}>
        <Text size="sm" c="dimmed" mb="sm">{t('hosts.linksHelp')}</Text>
        <Table.ScrollContainer minWidth={420}>
          <Table verticalSpacing="xs">
            <Table.Thead>
              <Table.Tr><Table.Th>{t('common.name')}</Table.Th><Table.Th>{t('common.state')}</Table.Th><Table.Th>{t('common.type')}</Table.Th><Table.Th>{t('hosts.mac')}</Table.Th></Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {items.map((link) => (
                <Table.Tr key={link.name}>
                  <Table.Td fw={560}>{link.name}</Table.Td>
                  <Table.Td><StatusBadge tone={link.state === 'up' ? 'ok' : link.state === 'down' ? 'warn' : 'idle'} label={link.state ?? t('common.unknown')} /></Table.Td>
                  <Table.Td>{link.type}</Table.Td>
                  <Table.Td>{link.mac}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </States>
    </Card>
  );
}

import { Table, Text } from '@mantine/core';
import type { Condition } from '@/api/types';
import { t } from '@/i18n';
import { Time } from './Time';

export function Conditions({ conditions }: { conditions: readonly Condition[] }) {
  if (conditions.length === 0) return <Text c="dimmed" size="sm">{t('common.none')}</Text>;
  return (
    <Table.ScrollContainer minWidth={420}>
      <Table verticalSpacing={6} horizontalSpacing="sm">
        <Table.Tbody>
          {conditions.map((condition) => (
            <Table.Tr key={condition.type}>
              <Table.Td fw={560}>{condition.type}</Table.Td>
              <Table.Td>{condition.status}</Table.Td>
              <Table.Td><Text size="sm" c="dimmed" style={{ overflowWrap: 'anywhere' }}>{condition.message || condition.reason}</Text></Table.Td>
              <Table.Td style={{ whiteSpace: 'nowrap' }}><Time at={condition.lastTransitionTime} /></Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

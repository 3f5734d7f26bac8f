import { Table } from '@mantine/core';
import { IconDeviceDesktop } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { Card } from '@/parts/Page';
import { States } from '@/parts/States';
import { Time } from '@/parts/Time';
import { addressesOf, joinRows } from '../machines/machine';
import { MachineState } from '../machines/State';

export function MachinesTab({ node }: { node: string }) {
  const machines = useCollection(kinds.machines);
  const instances = useCollection(kinds.instances).items;
  const items = useMemo(() => joinRows(machines.items, instances).filter((row) => row.instance?.status?.nodeName === node), [machines.items, instances, node]);
  return (
    <Card>
      <States snapshot={{ ...machines, items }} empty={<Blank icon={IconDeviceDesktop} title={t('hosts.noMachines')} />}>
        <Table.ScrollContainer minWidth={480}>
          <Table verticalSpacing="xs">
            <Table.Thead>
              <Table.Tr><Table.Th>{t('common.name')}</Table.Th><Table.Th>{t('common.namespace')}</Table.Th><Table.Th>{t('common.state')}</Table.Th><Table.Th>{t('machines.addresses')}</Table.Th><Table.Th>{t('common.age')}</Table.Th></Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {items.map((row) => (
                <Table.Tr key={row.machine.metadata.uid}>
                  <Table.Td fw={560}><Link to={objectAddress('/machines', row.machine)}>{row.machine.metadata.name}</Link></Table.Td>
                  <Table.Td>{row.machine.metadata.namespace}</Table.Td>
                  <Table.Td><MachineState row={row} /></Table.Td>
                  <Table.Td>{addressesOf(row.instance).join(', ') || '–'}</Table.Td>
                  <Table.Td><Time at={row.machine.metadata.creationTimestamp} /></Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </States>
    </Card>
  );
}

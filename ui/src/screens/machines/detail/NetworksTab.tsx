import { Button, Table } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { steveAction } from '@/api/client';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import { Card } from '@/parts/Page';
import { AddNicDialog } from '../dialogs/DiskDialogs';
import type { TabProps } from './MachineDetail';

export function Tab({ row: { machine, instance } }: TabProps) {
  const { namespace = '', name } = machine.metadata;
  const can = useCan(namespace);
  const mayUpdate = can('update', kinds.machines, name);
  const guest = machine.spec.template.spec;
  const remove = (nic: string) =>
    ask({
      title: t('detail.removeNicTitle', { nic, name }),
      body: t('detail.removeNicHelp'),
      confirm: t('common.remove'),
      dangerous: true,
      run: () => steveAction(kinds.machines, machine, 'removeNic', { interfaceName: nic }),
    });
  return (
    <Card title={t('detail.networks')} actions={mayUpdate && <Button size="xs" variant="default" leftSection={<IconPlus size={14} />} onClick={() => openDialog((close) => <AddNicDialog machine={machine} onClose={close} />)}>{t('detail.addNic')}</Button>}>
      <Table.ScrollContainer minWidth={640}>
        <Table verticalSpacing="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('common.name')}</Table.Th>
              <Table.Th>{t('create.network')}</Table.Th>
              <Table.Th>{t('machines.addresses')}</Table.Th>
              <Table.Th>{t('detail.mac')}</Table.Th>
              <Table.Th>{t('detail.model')}</Table.Th>
              <Table.Th>{t('detail.link')}</Table.Th>
              <Table.Th />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {(guest.domain.devices.interfaces ?? []).map((nic) => {
              const network = guest.networks?.find((each) => each.name === nic.name);
              const status = instance?.status?.interfaces?.find((each) => each.name === nic.name);
              return (
                <Table.Tr key={nic.name}>
                  <Table.Td fw={560}>{nic.name}{status?.interfaceName && ` (${status.interfaceName})`}</Table.Td>
                  <Table.Td>{network?.multus?.networkName ?? t('detail.defaultNetwork')}</Table.Td>
                  <Table.Td>{(status?.ipAddresses ?? []).join(', ') || '–'}</Table.Td>
                  <Table.Td>{status?.mac ?? nic.macAddress ?? '–'}</Table.Td>
                  <Table.Td>{nic.model ?? '–'}</Table.Td>
                  <Table.Td>{status?.linkState ?? '–'}</Table.Td>
                  <Table.Td>{mayUpdate && network?.multus && <Button size="compact-sm" variant="subtle" color="red" onClick={() => remove(nic.name)}>{t('common.remove')}</Button>}</Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}

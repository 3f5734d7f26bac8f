import { Table } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useMemo, type ReactNode } from 'react';
import type { Snapshot } from '@/api/collection';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { objectAddress } from '@/app/address';
import { t } from '@/i18n';
import { ObjectMenu } from '@/parts/kind/ObjectMenu';
import { States } from '@/parts/States';
import { Time } from '@/parts/Time';
import { areaOf, takenAt, typeOf } from './backup';
import { KeptState } from './BackupState';
import { deleteHelp, KeptItems } from './KeptItems';

/** Some snapshots or backups inside of another screen, newest first. */
export function KeptTable({ snapshot, empty }: { snapshot: Snapshot<VirtualMachineBackup>; empty: ReactNode }) {
  const items = useMemo(() => [...snapshot.items].sort((a, b) => (takenAt(b) ?? '').localeCompare(takenAt(a) ?? '')), [snapshot.items]);
  return (
    <States snapshot={snapshot} empty={empty}>
      <Table.ScrollContainer minWidth={520}>
        <Table verticalSpacing="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('common.name')}</Table.Th>
              <Table.Th>{t('common.state')}</Table.Th>
              <Table.Th>{t('detail.taken')}</Table.Th>
              <Table.Th aria-label={t('common.actions')} />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {items.map((backup) => {
              const address = objectAddress(areaOf(typeOf(backup)), backup);
              return (
                <Table.Tr key={backup.metadata.uid}>
                  <Table.Td fw={560} style={{ overflowWrap: 'anywhere' }}><Link to={address}>{backup.metadata.name}</Link></Table.Td>
                  <Table.Td><KeptState backup={backup} /></Table.Td>
                  <Table.Td style={{ whiteSpace: 'nowrap' }}><Time at={takenAt(backup)} /></Table.Td>
                  <Table.Td align="right"><ObjectMenu kind={kinds.backups} object={backup} address={address} deleteHelp={deleteHelp(typeOf(backup))}>{() => <KeptItems backup={backup} />}</ObjectMenu></Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </States>
  );
}

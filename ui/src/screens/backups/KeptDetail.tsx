import { Alert, Button, Table } from '@mantine/core';
import { IconHistory } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import type { VirtualMachineBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { useCan } from '@/api/permissions';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { openDialog } from '@/parts/dialogs';
import { CopyableCode } from '@/parts/form/Preview';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { Time } from '@/parts/Time';
import { cpusOf, memoryOf } from '@/screens/machines/machine';
import type { KeptType } from './backup';
import { areaOf, isBackup, isPinned, machineOf, memoryAnnotation, scheduleOf, sizeOf, speedOf, stateOf, takenAt } from './backup';
import { HowFar, KeptState } from './BackupState';
import { ScheduleCell } from './keptColumns';
import { deleteHelp, KeptItems } from './KeptItems';
import { RestoreKept } from './RestoreKept';

/** One snapshot or backup of a machine. */
export function KeptDetail({ type }: { type: KeptType }) {
  return (
    <KindDetail
      kind={kinds.backups}
      area={areaOf(type)}
      parent={t(type === 'snapshot' ? 'snapshots.title' : 'backups.title')}
      meta={(backup) => <KeptState backup={backup} />}
      facts={(backup) => [
        [t('backups.machine'), <Link key="machine" to={`/machines/${backup.metadata.namespace}/${machineOf(backup)}`}>{machineOf(backup)}</Link>],
        [t('detail.taken'), <Time key="taken" at={takenAt(backup)} />],
        [t('backups.diskSize'), sizeOf(backup) && formatBytes(sizeOf(backup), language())],
        [t('backups.hardware'), hardwareOf(backup)],
        [t('machines.snapshotMemory'), backup.metadata.annotations?.[memoryAnnotation] === 'true' && t('common.yes')],
        [t('backups.schedule'), scheduleOf(backup) && <ScheduleCell key="schedule" id={scheduleOf(backup)} />],
        [t('backups.target'), backup.status?.backupTarget?.endpoint || backup.status?.backupTarget?.bucketName],
        [t('backups.pinned'), isPinned(backup) && t('common.yes')],
      ]}
      body={(backup) => <Body backup={backup} />}
      actions={(backup) => <RestoreButton backup={backup} />}
      menu={(backup) => <KeptItems backup={backup} />}
      deleteHelp={deleteHelp(type)}
    />
  );
}

function hardwareOf(backup: VirtualMachineBackup): string | undefined {
  const spec = backup.status?.source?.spec;
  if (!spec) return undefined;
  const machine = { metadata: { name: '' }, spec };
  return `${cpusOf(machine)} CPU · ${formatBytes(memoryOf(machine), language())}`;
}

function RestoreButton({ backup }: { backup: VirtualMachineBackup }) {
  const can = useCan(backup.metadata.namespace ?? '');
  if (!can('create', kinds.restores)) return null;
  return <Button leftSection={<IconHistory size={17} />} disabled={!backup.status?.readyToUse} onClick={() => openDialog((close) => <RestoreKept backup={backup} onClose={close} />)}>{t('detail.restore')}</Button>;
}

function Body({ backup }: { backup: VirtualMachineBackup }) {
  const { state, message } = stateOf(backup);
  const { name, namespace = 'default' } = backup.metadata;
  const commands = [`croft backup verify ${name} -n ${namespace}`, `croft backup ls ${name} -n ${namespace}`, `croft backup cp ${name}:DISK:/PATH . -n ${namespace}`];
  return (
    <>
      {message && state !== 'deleting' && <Alert color={state === 'failed' ? 'red' : 'yellow'} title={t(`backups.${state}`)}>{message}</Alert>}
      <Card title={t('detail.disks')}><Disks backup={backup} /></Card>
      {isBackup(backup) && state === 'ready' && <Card title={t('backups.commands')}><CopyableCode text={commands.join('\n')} /></Card>}
    </>
  );
}

function Disks({ backup }: { backup: VirtualMachineBackup }) {
  const volumes = backup.status?.volumeBackups ?? [];
  return (
    <Table.ScrollContainer minWidth={520}>
      <Table verticalSpacing="sm">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('common.name')}</Table.Th>
            <Table.Th>{t('backups.volume')}</Table.Th>
            <Table.Th>{t('common.size')}</Table.Th>
            <Table.Th>{t('common.state')}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {volumes.map((volume) => (
            <Table.Tr key={volume.volumeName}>
              <Table.Td fw={560}>{volume.volumeName}</Table.Td>
              <Table.Td style={{ overflowWrap: 'anywhere' }}>{volume.persistentVolumeClaim?.metadata?.name}</Table.Td>
              <Table.Td>{formatBytes(volume.volumeSize, language())}</Table.Td>
              <Table.Td>{volume.readyToUse ? t('detail.ready') : (volume.error?.message ?? (volume.progress ? <HowFar value={volume.progress} speed={speedOf(backup)} /> : t('backups.running')))}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

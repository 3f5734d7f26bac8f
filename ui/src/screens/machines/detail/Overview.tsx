import { Progress, SimpleGrid, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { request, subresource } from '@/api/client';
import { kinds } from '@/api/kinds';
import type { VirtualMachineInstance } from '@/api/kubevirt';
import { useCan } from '@/api/permissions';
import { formatBytes } from '@/api/quantity';
import { language, t } from '@/i18n';
import { UsageCharts } from '@/parts/charts/UsageCharts';
import { Conditions } from '@/parts/Conditions';
import { Facts } from '@/parts/Facts';
import { LabelsCard } from '@/parts/LabelsCard';
import { Card } from '@/parts/Page';
import { Time } from '@/parts/Time';
import { isRunning } from '../availability';
import type { MachineRow } from '../machine';
import { addressesOf, cpusOf, memoryOf, nodeOf } from '../machine';

export function Overview({ row }: { row: MachineRow }) {
  const { machine, instance } = row;
  const { namespace = '', name } = machine.metadata;
  const can = useCan(namespace);
  const running = isRunning(row);
  const { domain } = machine.spec.template.spec;
  const efi = domain.firmware?.bootloader?.efi;
  const since = instance?.status?.phaseTransitionTimestamps?.find((step) => step.phase === 'Running')?.phaseTransitionTimestamp;
  return (
    <Stack>
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <Card title={t('detail.machine')}>
          <Facts
            facts={[
              [t('common.description'), machine.metadata.annotations?.['field.cattle.io/description']],
              [t('machines.cpus'), cpusOf(machine)],
              [t('machines.memory'), formatBytes(memoryOf(machine), language())],
              [t('machines.addresses'), addressesOf(instance).join(', ')],
              [t('machines.host'), nodeOf(row)],
              [t('detail.uptime'), since && <Time key="since" at={since} />],
              [t('detail.firmware'), efi ? (efi.secureBoot ? t('create.secureBoot') : t('create.uefi')) : t('create.bios')],
              [t('create.tpm'), domain.devices.tpm ? t('common.yes') : ''],
              [t('detail.board'), domain.machine?.type],
              [t('machines.runStrategy'), machine.spec.runStrategy],
              [t('common.created'), <Time key="time" at={machine.metadata.creationTimestamp} />],
            ]}
          />
        </Card>
        <Stack>
          {running && instance && <GuestCard instance={instance} />}
          <LabelsCard kind={kinds.machines} object={machine} mayEdit={can('update', kinds.machines, name)} />
        </Stack>
      </SimpleGrid>
      {running && <UsageCharts target={`virtualmachineinstances/${namespace}/${name}`} />}
      <Card title={t('common.conditions')}><Conditions conditions={instance?.status?.conditions ?? machine.status?.conditions ?? []} /></Card>
    </Stack>
  );
}

interface GuestInfo {
  guestAgentVersion?: string;
  hostname?: string;
  timezone?: string;
  os?: { prettyName?: string; kernelRelease?: string };
  userList?: { userName: string }[];
  fsInfo?: { disks?: { diskName: string; mountPoint: string; fileSystemType: string; totalBytes: number; usedBytes: number }[] };
}

/** What the agent in the guest tells, asked for again now and then: it is not part of the object. */
function GuestCard({ instance }: { instance: VirtualMachineInstance }) {
  const connected = instance.status?.conditions?.some((condition) => condition.type === 'AgentConnected' && condition.status === 'True') ?? false;
  const { data } = useQuery({
    queryKey: ['guest', instance.metadata.uid],
    queryFn: () => request<GuestInfo>('GET', subresource('virtualmachineinstances', instance, 'guestosinfo')),
    enabled: connected,
    refetchInterval: 30_000,
  });
  if (!connected) return <Card title={t('detail.guest')}><Text size="sm" c="dimmed">{t('detail.noAgent')}</Text></Card>;
  return (
    <Card title={t('detail.guest')}>
      <Facts
        facts={[
          [t('detail.os'), data?.os?.prettyName],
          [t('detail.kernel'), data?.os?.kernelRelease],
          [t('detail.hostname'), data?.hostname],
          [t('detail.timezone'), data?.timezone?.split(',')[0]],
          [t('detail.users'), data?.userList?.map((user) => user.userName).join(', ')],
          [t('detail.agent'), data?.guestAgentVersion],
        ]}
      />
      {(data?.fsInfo?.disks?.length ?? 0) > 0 && <Text size="sm" fw={560} mt="md" mb={6}>{t('detail.fileSystems')}</Text>}
      {data?.fsInfo?.disks?.map((disk) => (
        <div key={`${disk.diskName}${disk.mountPoint}`}>
          <Text size="sm">{disk.mountPoint} <Text span c="dimmed" size="sm">{t('detail.fsUsed', { used: formatBytes(disk.usedBytes, language()), total: formatBytes(disk.totalBytes, language()) })}</Text></Text>
          <Progress size="sm" mb={8} value={(100 * disk.usedBytes) / Math.max(1, disk.totalBytes)} aria-label={disk.mountPoint} />
        </div>
      ))}
    </Card>
  );
}

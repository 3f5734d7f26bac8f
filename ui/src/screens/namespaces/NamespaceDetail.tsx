import { ActionIcon, Button, Group, Progress, Stack, Text } from '@mantine/core';
import { IconEdit, IconPlus, IconTrash } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { deleteObject } from '@/api/client';
import type { ResourceQuota } from '@/api/cluster';
import { useCollection, useObject } from '@/api/collections';
import type { Namespace } from '@/api/core';
import { kinds } from '@/api/kinds';
import { useCan, useMay } from '@/api/permissions';
import { formatBytes } from '@/api/quantity';
import { useNamespace } from '@/app/namespace';
import { language, t } from '@/i18n';
import { ask } from '@/parts/confirm';
import { openDialog } from '@/parts/dialogs';
import type { ExtraTab } from '@/parts/kind/KindDetail';
import { KindDetail } from '@/parts/kind/KindDetail';
import { Card } from '@/parts/Page';
import { GrantsCard } from '../access/GrantsCard';
import { descriptionOf } from './NamespaceDialog';
import { namespaceMenu, NamespaceState } from './NamespaceList';
import type { QuotaLine } from './quota';
import { linesOf } from './quota';
import { QuotaDialog } from './QuotaDialog';
import { SnapshotQuotaDialog } from './SnapshotQuotaDialog';

export function Screen() {
  const tabs: ExtraTab<Namespace>[] = [{ id: 'access', label: t('access.who'), content: accessTab }];
  return (
    <KindDetail
      kind={kinds.namespaces}
      area="/namespaces"
      parent={t('namespaces.title')}
      meta={meta}
      facts={(namespace) => [
        [t('common.description'), descriptionOf(namespace)],
        [t('machines.title'), <Contents key="machines" namespace={namespace.metadata.name} />],
      ]}
      body={body}
      tabs={tabs}
      menu={namespaceMenu}
      deleteHelp={t('namespaces.deleteHelp')}
    />
  );
}

const meta = (namespace: Namespace) => <NamespaceState namespace={namespace} />;
const body = (namespace: Namespace) => <><Quotas namespace={namespace.metadata.name} /><SnapshotQuotas namespace={namespace} /></>;
const accessTab = (namespace: Namespace) => <GrantsCard namespace={namespace.metadata.name} />;

function Contents({ namespace }: { namespace: string }) {
  const machines = useCollection(kinds.machines, { namespace }).items;
  const [, choose] = useNamespace();
  return <Link to="/machines" onClick={() => choose(namespace)}>{machines.length}</Link>;
}

function Quotas({ namespace }: { namespace: string }) {
  const quotas = useCollection(kinds.resourceQuotas, { namespace }).items;
  const can = useCan(namespace);
  const add = () => openDialog((close) => <QuotaDialog namespace={namespace} onClose={close} />);
  return (
    <Card title={t('namespaces.quotas')} actions={can('create', kinds.resourceQuotas) && <Button size="xs" variant="default" leftSection={<IconPlus size={14} />} onClick={add}>{t('namespaces.addQuota')}</Button>}>
      {quotas.length === 0 && <Text size="sm" c="dimmed">{t('namespaces.noQuotas')}</Text>}
      <Stack>{quotas.map((quota) => <QuotaView key={quota.metadata.uid} quota={quota} />)}</Stack>
    </Card>
  );
}

function QuotaView({ quota }: { quota: ResourceQuota }) {
  const { name, namespace = '' } = quota.metadata;
  const can = useCan(namespace);
  const remove = () =>
    ask({ title: t('common.deleteTitle', { name }), body: t('namespaces.deleteQuotaHelp'), confirm: t('common.delete'), dangerous: true, run: () => deleteObject(kinds.resourceQuotas, quota) });
  return (
    <div>
      <Group justify="space-between" mb={6}>
        <Text fw={560} size="sm">{name}</Text>
        <Group gap={4}>
          {can('update', kinds.resourceQuotas, name) && <ActionIcon variant="subtle" color="gray" aria-label={`${t('common.edit')}: ${name}`} onClick={() => openDialog((close) => <QuotaDialog namespace={namespace} quota={quota} onClose={close} />)}><IconEdit size={16} /></ActionIcon>}
          {can('delete', kinds.resourceQuotas, name) && <ActionIcon variant="subtle" color="red" aria-label={`${t('common.delete')}: ${name}`} onClick={remove}><IconTrash size={16} /></ActionIcon>}
        </Group>
      </Group>
      <Stack gap={8}>{linesOf(quota).map((line) => <Line key={line.name} line={line} />)}</Stack>
    </div>
  );
}

function Line({ line }: { line: QuotaLine }) {
  const percent = line.used === undefined || !line.hard ? 0 : Math.min(100, (100 * line.used) / line.hard);
  return (
    <div>
      <Group justify="space-between"><Text size="sm" c="dimmed">{line.name}</Text><Text size="sm">{line.text}</Text></Group>
      <Progress size="sm" value={percent} color={percent >= 100 ? 'red' : percent > 80 ? 'yellow' : 'croft'} aria-label={line.name} />
    </div>
  );
}

/** Harvester's quota object has one name that counts. */
const quotaName = 'default-resource-quota';

function SnapshotQuotas({ namespace }: { namespace: Namespace }) {
  const { name } = namespace.metadata;
  const { object } = useObject(kinds.snapshotQuotas, name, quotaName);
  const mayNamespace = useMay('update', kinds.namespaces);
  const can = useCan(name);
  const limit = object?.spec?.snapshotLimit;
  const usage = object?.status?.snapshotLimitStatus;
  const total = limit?.namespaceTotalSnapshotSizeQuota ?? 0;
  const used = usage?.namespaceTotalSnapshotSizeUsage ?? 0;
  const perMachine = Object.entries(limit?.vmTotalSnapshotSizeQuota ?? {});
  const edit = () => openDialog((close) => <SnapshotQuotaDialog namespace={namespace} current={total > 0 ? String(total) : ''} onClose={close} />);
  const text = (taken: number, most: number) => `${formatBytes(taken, language())} / ${formatBytes(most, language())}`;
  return (
    <Card title={t('namespaces.snapshotQuotas')} actions={mayNamespace && can('update', kinds.snapshotQuotas) && <Button size="compact-xs" variant="subtle" onClick={edit}>{t('common.edit')}</Button>}>
      <Stack gap={8}>
        {total > 0 ? <Line line={{ name: t('namespaces.snapshotQuota'), used, hard: total, text: text(used, total) }} /> : <Text size="sm" c="dimmed">{t('namespaces.noSnapshotQuota')}</Text>}
        {perMachine.map(([machine, most]) => {
          const taken = usage?.vmTotalSnapshotSizeUsage?.[machine] ?? 0;
          return <Line key={machine} line={{ name: machine, used: taken, hard: most, text: text(taken, most) }} />;
        })}
      </Stack>
    </Card>
  );
}

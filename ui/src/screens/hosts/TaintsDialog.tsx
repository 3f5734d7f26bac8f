import { ActionIcon, Button, Group, Select, Stack, Text, TextInput } from '@mantine/core';
import { IconPlus, IconTrash } from '@tabler/icons-react';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import type { Node } from '@/api/core';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { say } from '@/parts/notify';

interface Taint {
  key: string;
  value?: string;
  effect: string;
}

const effects = ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] as const;

/** Taints keep machines away from a host that do not tolerate them. */
export function TaintsDialog({ node, onClose }: { node: Node; onClose: () => void }) {
  const { name } = node.metadata;
  const [taints, setTaints] = useState<Taint[]>(node.spec?.taints ?? []);
  const change = (index: number, changes: Partial<Taint>) => setTaints(taints.map((taint, at) => (at === index ? { ...taint, ...changes } : taint)));
  const patch = { spec: { taints: taints.length > 0 ? taints.map(({ value, ...taint }) => ({ ...taint, ...(value && { value }) })) : null } };
  return (
    <FormDialog
      title={t('hosts.taintsTitle', { name })}
      onClose={onClose}
      size="lg"
      submitLabel={t('common.save')}
      incomplete={taints.some((taint) => taint.key === '')}
      objects={[{ apiVersion: 'v1', kind: 'Node', metadata: { name }, ...patch }]}
      command={`kubectl taint node ${name} ${taints.map(({ key, value, effect }) => `${key}${value ? `=${value}` : ''}:${effect}`).join(' ')} --overwrite`}
      run={async () => {
        await mergePatch(kinds.nodes, node, patch);
        say(t('common.saved'));
      }}
    >
      <Stack gap="sm">
        <Text size="sm" c="dimmed">{t('hosts.taintsHelp')}</Text>
        {taints.map((taint, index) => (
          // Taints have no identity of their own; their place in the list is one.
          // oxlint-disable-next-line react/no-array-index-key
          <Group key={index} align="flex-end" gap="xs" wrap="nowrap">
            <TextInput style={{ flex: 2 }} label={t('common.key')} value={taint.key} onChange={(event) => change(index, { key: event.currentTarget.value })} />
            <TextInput style={{ flex: 1 }} label={t('common.value')} value={taint.value ?? ''} onChange={(event) => change(index, { value: event.currentTarget.value })} />
            <Select w={190} label={t('hosts.effect')} allowDeselect={false} data={effects.map((effect) => ({ value: effect, label: t(`hosts.effect${effect}`) }))} value={taint.effect} onChange={(effect) => change(index, { effect: effect ?? 'NoSchedule' })} />
            <ActionIcon size={36} variant="subtle" color="red" aria-label={t('common.remove')} onClick={() => setTaints(taints.filter((_, at) => at !== index))}><IconTrash size={16} /></ActionIcon>
          </Group>
        ))}
        <Button variant="default" size="xs" leftSection={<IconPlus size={14} />} style={{ alignSelf: 'flex-start' }} onClick={() => setTaints([...taints, { key: '', effect: 'NoSchedule' }])}>{t('hosts.addTaint')}</Button>
      </Stack>
    </FormDialog>
  );
}

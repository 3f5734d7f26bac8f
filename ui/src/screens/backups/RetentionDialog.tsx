import { NumberInput, Select, Text } from '@mantine/core';
import { useState } from 'react';
import { mergePatch } from '@/api/client';
import { useObject } from '@/api/collections';
import { kinds } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { annotationsOf, countAnnotation, periodAnnotation, retentionOf } from './retention';

/** How many backups of a machine stay, and for how long. */
export function RetentionDialog({ namespace, name, onClose }: { namespace: string; name: string; onClose: () => void }) {
  const { object, snapshot } = useObject(kinds.machines, namespace, name);
  if (snapshot.phase === 'loading') return null;
  if (!object) return <FormDialog title={t('backups.retentionTitle', { name })} onClose={onClose} run={() => Promise.resolve()} submitLabel={t('common.close')}><Text>{t('backups.machineGone', { name })}</Text></FormDialog>;
  return <Retention machine={object} onClose={onClose} />;
}

function Retention({ machine, onClose }: { machine: VirtualMachine; onClose: () => void }) {
  const { name, namespace = 'default' } = machine.metadata;
  const [form, setForm] = useState(() => retentionOf(machine.metadata.annotations));
  const annotations = annotationsOf(form);
  const run = async () => {
    await mergePatch(kinds.machines, machine, { metadata: { annotations } });
    say(t('common.saved'));
  };
  const command = `kubectl -n ${namespace} annotate --overwrite virtualmachine ${name} ${Object.entries(annotations).map(([key, value]) => (value === null ? `${key}-` : `${key}=${value}`)).join(' ')}`;
  const paths = [`metadata.annotations.${countAnnotation}`, `metadata.annotations.${periodAnnotation}`, 'metadata.annotations'];
  return (
    <FormDialog title={t('backups.retentionTitle', { name })} onClose={onClose} run={run} submitLabel={t('common.save')} command={command} placed={paths}>
      {(error) => (
        <>
          <Text size="sm" c="dimmed">{t('backups.retentionHelp')}</Text>
          <NumberInput label={t('backups.keepCount')} description={t('backups.noLimit')} min={1} max={10_000} allowDecimal={false} value={form.count ?? ''} onChange={(value) => setForm({ ...form, count: value === '' ? null : Number(value) })} error={refusalOf(error, ...paths)} data-autofocus />
          <NumberInput label={t('backups.keepFor')} description={t('backups.noLimit')} min={1} max={10_000} allowDecimal={false} value={form.period ?? ''} onChange={(value) => setForm({ ...form, period: value === '' ? null : Number(value) })} />
          <Select aria-label={t('backups.keepUnit')} allowDeselect={false} data={[{ value: 'h', label: t('backups.hours') }, { value: 'd', label: t('backups.days') }, { value: 'w', label: t('backups.weeks') }]} value={form.unit} onChange={(unit) => setForm({ ...form, unit: (unit ?? 'd') as typeof form.unit })} />
        </>
      )}
    </FormDialog>
  );
}

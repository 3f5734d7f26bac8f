import { NumberInput, Radio, Select, Stack } from '@mantine/core';
import { useState } from 'react';
import { createObject, mergePatch } from '@/api/client';
import { useCollection } from '@/api/collections';
import type { ScheduleVMBackup } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import type { VirtualMachine } from '@/api/kubevirt';
import { useDefaultNamespace } from '@/app/namespace';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { NamespaceSelect } from '@/parts/form/NamespaceSelect';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { parseCron } from './cron';
import { CronInput } from './CronInput';
import type { KeptType, ScheduleForm } from './schedule';
import { machineOf, scheduleCommand, scheduleObject, typeOf } from './schedule';

const placed = ['metadata.name', 'spec.cron', 'spec.retain', 'spec.maxFailure', 'spec.vmbackup'];

/** Snapshots or backups of a machine, again and again: a new schedule, for this machine or one to choose, or a change. */
export function ScheduleDialog({ machine, schedule, onClose }: { machine?: VirtualMachine; schedule?: ScheduleVMBackup; onClose: () => void }) {
  const defaultNamespace = useDefaultNamespace();
  const [form, setForm] = useState<ScheduleForm>(() => formOf(schedule, machine, defaultNamespace));
  const [named, setNamed] = useState(schedule !== undefined);
  const change = (changes: Partial<ScheduleForm>) =>
    setForm((before) => {
      const next = { ...before, ...changes };
      return named || 'name' in changes ? next : { ...next, name: nameOf(next) };
    });

  const changed = { cron: form.cron.trim(), retain: form.retain, maxFailure: form.maxFailure };
  const object = schedule ? { ...schedule, spec: { ...schedule.spec, ...changed } } : scheduleObject(form);
  const run = async () => {
    if (schedule) await mergePatch(kinds.schedules, schedule, { spec: changed });
    else await createObject(kinds.schedules, object);
    say(schedule ? t('common.saved') : t('common.actionDone', { action: t('schedules.create'), name: form.name }));
  };
  const title = schedule ? t('schedules.editTitle', { name: form.name }) : machine ? t('machines.scheduleTitle', { name: machine.metadata.name }) : t('schedules.create');
  const command = schedule
    ? `kubectl -n ${form.namespace} patch schedulevmbackup ${form.name} --type merge -p '${JSON.stringify({ spec: changed })}'`
    : scheduleCommand(form);
  return (
    <FormDialog title={title} onClose={onClose} run={run} submitLabel={schedule ? t('common.save') : t('common.create')} incomplete={!isValidName(form.name) || form.machine === '' || !parseCron(form.cron)} objects={[withoutStatus(object)]} command={command} placed={placed}>
      {(error) => (
        <>
          {!schedule && !machine && <MachineChoice form={form} change={change} error={refusalOf(error, 'spec.vmbackup.source')} />}
          {!schedule && (
            <>
              <Radio.Group label={t('forms.snapshotOrBackup')} value={form.type} onChange={(value) => change({ type: value as KeptType })} error={refusalOf(error, 'spec.vmbackup')}>
                <Stack gap={6} mt={6}>
                  <Radio value="snapshot" label={t('forms.asSnapshot')} />
                  <Radio value="backup" label={t('forms.asBackup')} />
                </Stack>
              </Radio.Group>
              <NameInput label={t('forms.scheduleName')} value={form.name} onChange={(name) => { setNamed(true); change({ name }); }} error={refusalOf(error, 'metadata.name')} />
            </>
          )}
          <CronInput value={form.cron} onChange={(cron) => change({ cron })} error={refusalOf(error, 'spec.cron')} />
          <NumberInput label={t('forms.retain')} description={t('forms.retainHelp')} min={2} max={250} value={form.retain} onChange={(value) => change({ retain: Number(value) || 2 })} error={refusalOf(error, 'spec.retain')} />
          <NumberInput label={t('forms.maxFailure')} description={t('forms.maxFailureHelp')} min={2} max={250} value={form.maxFailure} onChange={(value) => change({ maxFailure: Number(value) || 2 })} error={refusalOf(error, 'spec.maxFailure')} />
        </>
      )}
    </FormDialog>
  );
}

function MachineChoice({ form, change, error }: { form: ScheduleForm; change: (changes: Partial<ScheduleForm>) => void; error: string | undefined }) {
  const machines = useCollection(kinds.machines, { namespace: form.namespace }).items;
  return (
    <>
      <NamespaceSelect value={form.namespace} onChange={(namespace) => change({ namespace, machine: '' })} />
      <Select label={t('schedules.machine')} required searchable data={machines.map(({ metadata }) => metadata.name).sort()} value={form.machine || null} onChange={(machine) => change({ machine: machine ?? '' })} error={error} nothingFoundMessage={t('schedules.noMachines')} />
    </>
  );
}

function formOf(schedule: ScheduleVMBackup | undefined, machine: VirtualMachine | undefined, defaultNamespace: string): ScheduleForm {
  if (schedule) {
    const { name, namespace = 'default' } = schedule.metadata;
    const { cron, retain, maxFailure } = schedule.spec;
    return { name, namespace, machine: machineOf(schedule), type: typeOf(schedule), cron, retain, maxFailure };
  }
  const form: ScheduleForm = { name: '', namespace: machine?.metadata.namespace ?? defaultNamespace, machine: machine?.metadata.name ?? '', type: 'snapshot', cron: '0 2 * * *', retain: 8, maxFailure: 4 };
  return { ...form, name: nameOf(form) };
}

function nameOf({ machine, type }: ScheduleForm): string {
  return machine && `${machine}-${type}s`.slice(0, 63);
}

function withoutStatus({ status: _status, ...rest }: ScheduleVMBackup): Omit<ScheduleVMBackup, 'status'> {
  return rest;
}

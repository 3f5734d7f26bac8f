import { Alert, NumberInput } from '@mantine/core';
import { useState } from 'react';
import { mergePatch, steveAction } from '@/api/client';
import { kinds } from '@/api/kinds';
import { binaryQuantity } from '@/api/quantity';
import { t } from '@/i18n';
import { FormDialog } from '@/parts/form/FormDialog';
import { SizeInput } from '@/parts/form/SizeInput';
import { refusalOf } from '@/parts/form/useSubmit';
import { say } from '@/parts/notify';
import { isRunning } from '../availability';
import type { MachineRow } from '../machine';
import { cpusOf, memoryOf } from '../machine';

const hotplugAnnotation = 'harvesterhci.io/enableCPUAndMemoryHotplug';

/** Processors and memory: at once where the machine was made for it, else at the next start. */
export function ResizeDialog({ row, onClose }: { row: MachineRow; onClose: () => void }) {
  const { machine } = row;
  const running = isRunning(row);
  const live = running && machine.metadata.annotations?.[hotplugAnnotation] === 'true';
  const [cpus, setCpus] = useState(cpusOf(machine));
  const [memory, setMemory] = useState(binaryQuantity(memoryOf(machine) ?? 2 ** 30));
  const patch = {
    spec: { template: { spec: { domain: { cpu: { sockets: 1, cores: cpus, threads: 1 }, memory: { guest: memory }, resources: { limits: { cpu: String(cpus), memory } } } } } },
  };

  const run = async () => {
    if (live) await steveAction(kinds.machines, machine, 'cpuAndMemoryHotplug', { sockets: cpus, memory });
    else await mergePatch(kinds.machines, machine, patch);
    say(t('common.saved'));
  };
  const command = `kubectl patch vm ${machine.metadata.name} -n ${machine.metadata.namespace} --type merge -p '${JSON.stringify(patch)}'`;
  return (
    <FormDialog title={t('machines.resizeTitle', { name: machine.metadata.name })} onClose={onClose} run={run} submitLabel={t('common.save')} incomplete={cpus < 1 || memory === ''} {...(!live && { command })}>
      {(error) => (
        <>
          {running && <Alert color={live ? 'croft' : 'yellow'}>{live ? t('machines.resizeLive') : t('machines.resizeLater')}</Alert>}
          <NumberInput label={t('machines.cpus')} min={1} max={1024} value={cpus} onChange={(value) => setCpus(Number(value) || 1)} error={refusalOf(error, 'spec.template.spec.domain.cpu')} />
          <SizeInput label={t('machines.memory')} value={memory} onChange={setMemory} error={refusalOf(error, 'spec.template.spec.domain.memory', 'spec.template.spec.domain.resources')} />
        </>
      )}
    </FormDialog>
  );
}

import { NumberInput } from '@mantine/core';
import type { ReactNode } from 'react';
import type { ApiError } from '@/api/errors';
import { formatBytes, parseQuantity } from '@/api/quantity';
import { language, t } from '@/i18n';
import { SizeInput } from '@/parts/form/SizeInput';
import { refusalOf } from '@/parts/form/useSubmit';
import classes from './Create.module.css';
import type { FieldsProps } from './fields';

const presets = [
  { label: 'create.presetTiny', cpus: 1, memory: '512Mi' },
  { label: 'create.presetSmall', cpus: 2, memory: '2Gi' },
  { label: 'create.presetMedium', cpus: 4, memory: '8Gi' },
  { label: 'create.presetLarge', cpus: 8, memory: '16Gi' },
] as const;
const domain = 'spec.template.spec.domain';

export function SizeFields({ form, change, error, children }: FieldsProps & { error: ApiError | null; children?: ReactNode }) {
  return (
    <>
      <div className={classes.presets}>
        {presets.map(({ label, cpus, memory }) => (
          <button key={label} type="button" className={classes.preset} aria-pressed={form.cpus === cpus && parseQuantity(form.memory) === parseQuantity(memory)} onClick={() => change({ cpus, memory })}>
            <b>{t(label)}</b>
            <span>{cpus} CPU · {formatBytes(parseQuantity(memory), language())}</span>
          </button>
        ))}
      </div>
      <div className={classes.columns}>
        <NumberInput label={t('create.cpus')} min={1} max={1024} value={form.cpus} onChange={(value) => change({ cpus: Number(value) || 1 })} error={refusalOf(error, `${domain}.cpu`)} />
        <SizeInput label={t('create.memory')} value={form.memory} onChange={(memory) => change({ memory })} error={refusalOf(error, `${domain}.memory`, `${domain}.resources`)} />
        {children}
      </div>
    </>
  );
}

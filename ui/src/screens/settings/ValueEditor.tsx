import { Stack, Text } from '@mantine/core';
import { t } from '@/i18n';
import { LazyEditor } from '@/parts/yaml/lazyEditor';
import type { Shape } from './catalog';
import classes from './Settings.module.css';
import { PartInput } from './PartInput';
import { fieldLabel } from './texts';
import { fieldFrom, readFields, textFrom, writeFields } from './value';

interface ValueEditorProps {
  shape: Shape;
  /** The text that is kept. */
  value: string;
  onChange: (value: string) => void;
  error: string | undefined;
  disabled: boolean;
}

/** A value of a setting by fields that fit it; what does not fit them is edited as text. */
export function ValueEditor({ shape, value, onChange, error, disabled }: ValueEditorProps) {
  if (shape.type === 'fields') {
    const before = readFields(value);
    if (before) {
      return (
        <Stack>
          {Object.entries(shape.fields).map(([name, part]) => (
            <PartInput key={name} part={part} label={fieldLabel(name)} disabled={disabled} value={fieldFrom(part, before[name])} onChange={(next) => onChange(writeFields(before, { [name]: next }))} />
          ))}
          {error && <Text size="sm" c="var(--mantine-color-error)" role="alert">{error}</Text>}
        </Stack>
      );
    }
  }
  if (shape.type === 'json' || shape.type === 'fields') {
    return (
      <Stack gap={6}>
        <div className={classes.editor}><LazyEditor label={t('common.value')} value={value} {...(!disabled && { onChange })} /></div>
        {error && <Text size="sm" c="var(--mantine-color-error)" role="alert">{error}</Text>}
      </Stack>
    );
  }
  return <PartInput part={shape} label={t('common.value')} error={error} disabled={disabled} value={fieldFrom(shape, value)} onChange={(next) => onChange(textFrom(next))} />;
}

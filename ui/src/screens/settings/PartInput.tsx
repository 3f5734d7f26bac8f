import { NumberInput, PasswordInput, Select, Switch, TagsInput, Textarea, TextInput } from '@mantine/core';
import { t } from '@/i18n';
import type { Part, Unit } from './catalog';
import type { FieldValue } from './value';

interface PartInputProps {
  part: Part;
  label: string;
  value: FieldValue;
  onChange: (value: FieldValue) => void;
  error?: string | undefined;
  disabled: boolean;
}

/** The right kind of field for a part of a value. */
export function PartInput({ part, label, value, onChange, error, disabled }: PartInputProps) {
  const shared = { label, error, disabled };
  switch (part.type) {
    case 'switch':
      return <Switch {...shared} checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />;
    case 'number':
      return (
        <NumberInput
          {...shared}
          maw={320}
          value={typeof value === 'number' || typeof value === 'string' ? value : ''}
          onChange={(next) => onChange(next)}
          min={part.min}
          max={part.max}
          clampBehavior="none"
          decimalScale={part.decimal ? 2 : 0}
          suffix={part.unit && ` ${unitText(part.unit)}`}
        />
      );
    case 'choice':
      return <Select {...shared} maw={320} data={[...part.options]} value={String(value) || null} onChange={(next) => onChange(next ?? '')} clearable />;
    case 'list':
      return <TagsInput {...shared} description={t('settings.listHelp')} value={Array.isArray(value) ? value : []} onChange={onChange} splitChars={[',', ' ']} acceptValueOnBlur />;
    case 'lines':
      return <Textarea {...shared} autosize minRows={3} maxRows={14} spellCheck={false} autoComplete="off" styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 13 } }} value={String(value)} onChange={(event) => onChange(event.currentTarget.value)} />;
    case 'text':
      return part.secret ? (
        <PasswordInput {...shared} autoComplete="new-password" value={String(value)} onChange={(event) => onChange(event.currentTarget.value)} />
      ) : (
        <TextInput {...shared} spellCheck={false} autoComplete="off" value={String(value)} onChange={(event) => onChange(event.currentTarget.value)} />
      );
  }
}

function unitText(unit: Unit): string {
  return unit === 'percent' ? '%' : unit === 'mebibytes' ? 'MiB' : t(`settings.${unit}`);
}

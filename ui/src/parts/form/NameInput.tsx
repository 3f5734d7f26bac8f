import { TextInput } from '@mantine/core';
import { t } from '@/i18n';
import { isValidName } from './names';

interface NameInputProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  error?: string | undefined;
  description?: string;
  autoFocus?: boolean;
}

/** The name of a new object, checked while it is typed. */
export function NameInput({ label, value, onChange, error, description, autoFocus }: NameInputProps) {
  const wrong = value !== '' && !isValidName(value);
  return (
    <TextInput
      label={label}
      description={description}
      required
      data-autofocus={autoFocus || undefined}
      autoFocus={autoFocus ?? false}
      autoComplete="off"
      autoCapitalize="none"
      spellCheck={false}
      maxLength={63}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value.toLowerCase().replace(/[\s_]/g, '-'))}
      error={wrong ? t('forms.badName') : error}
    />
  );
}

import { Select } from '@mantine/core';
import { useNamespaceNames } from '@/app/namespace';
import { t } from '@/i18n';

interface NamespaceSelectProps {
  value: string;
  onChange: (namespace: string) => void;
  label?: string;
  description?: string;
  error?: string | undefined;
}

/** Where a new object goes. A namespace that may not be listed can still be the chosen one. */
export function NamespaceSelect({ value, onChange, label, description, error }: NamespaceSelectProps) {
  const names = useNamespaceNames();
  return (
    <Select
      label={label ?? t('common.namespace')}
      description={description}
      error={error}
      data={names.includes(value) ? names : [value, ...names]}
      allowDeselect={false}
      searchable
      value={value}
      onChange={(chosen) => onChange(chosen ?? value)}
    />
  );
}

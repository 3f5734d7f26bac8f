import { Select } from '@mantine/core';
import { IconFolder } from '@tabler/icons-react';
import { t } from '@/i18n';
import { isSystemNamespace, useNamespace, useNamespaceNames } from './namespace';

const all = '*';

/** Which namespace the lists show. */
export function NamespacePicker() {
  const names = useNamespaceNames();
  const [chosen, choose] = useNamespace();
  const known = chosen === '' || names.includes(chosen) ? names : [chosen, ...names];
  const data = [
    { value: all, label: t('app.allNamespaces') },
    { group: t('app.namespace'), items: known.filter((name) => !isSystemNamespace(name)) },
    { group: t('app.systemNamespaces'), items: known.filter(isSystemNamespace) },
  ];
  return (
    <Select
      aria-label={t('app.namespace')}
      size="sm"
      w={200}
      miw={120}
      searchable
      allowDeselect={false}
      checkIconPosition="right"
      leftSection={<IconFolder size={16} aria-hidden />}
      data={data}
      value={chosen || all}
      onChange={(value) => choose(value === null || value === all ? '' : String(value))}
      maxDropdownHeight={420}
    />
  );
}

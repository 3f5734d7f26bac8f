import { Autocomplete, Button, Group, Select, Switch, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { IconFilterOff, IconSearch, IconUser } from '@tabler/icons-react';
import { useState } from 'react';
import { t } from '@/i18n';
import type { Filters, Range, VerbGroup } from './filters';
import { ranges, verbGroups } from './filters';

interface AuditFiltersProps {
  filters: Filters;
  /** Names to choose from. */
  users: readonly string[];
  change: (changes: Record<string, string | undefined>) => void;
}

const typingMs = 400;
const verbs = Object.keys(verbGroups) as VerbGroup[];
const spans = Object.keys(ranges) as Range[];

/** What the server is to look for: it searches the whole log, not only what is shown. */
export function AuditFilters({ filters, users, change }: AuditFiltersProps) {
  const [text, setText] = useTyped(filters.text, (value) => change({ text: value }));
  const [user, setUser] = useTyped(filters.user, (value) => change({ user: value }));
  const clear = () => {
    setText('');
    setUser('');
    change({ verb: undefined, failed: undefined, range: undefined });
  };
  const narrowed = Boolean(filters.text || filters.user || filters.verb || filters.failed || filters.range);
  return (
    <Group gap={8} mb="sm" role="search" aria-label={t('common.filter')}>
      <TextInput type="search" w={240} aria-label={t('common.search')} placeholder={t('common.search')} leftSection={<IconSearch size={16} aria-hidden />} value={text} onChange={(event) => setText(event.currentTarget.value)} />
      <Autocomplete w={190} aria-label={t('audit.who')} placeholder={t('audit.who')} leftSection={<IconUser size={16} aria-hidden />} data={[...users]} value={user} onChange={setUser} limit={20} />
      <Select w={170} clearable aria-label={t('audit.what')} placeholder={t('audit.anything')} data={verbs.map((value) => ({ value, label: t(`audit.verb_${value}`) }))} value={filters.verb} onChange={(value) => change({ verb: value ?? undefined })} />
      <Select w={170} clearable aria-label={t('audit.when')} placeholder={t('audit.anyTime')} data={spans.map((value) => ({ value, label: t(`audit.range_${value}`) }))} value={filters.range} onChange={(value) => change({ range: value ?? undefined })} />
      <Switch label={t('audit.onlyFailures')} checked={filters.failed} onChange={(event) => change({ failed: event.currentTarget.checked ? 'yes' : undefined })} />
      {narrowed && (
        <Button variant="subtle" color="gray" leftSection={<IconFilterOff size={15} aria-hidden />} onClick={clear}>
          {t('common.clearFilters')}
        </Button>
      )}
    </Group>
  );
}

/** A text that counts when the user pauses. Only typing sets the address; the address is read once. */
function useTyped(value: string, commit: (value: string) => void): [string, (value: string) => void] {
  const [typed, setTyped] = useState(value);
  const later = useDebouncedCallback(commit, typingMs);
  return [
    typed,
    (next) => {
      setTyped(next);
      later(next);
    },
  ];
}

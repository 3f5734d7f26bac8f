import { IconSettings } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { keyOf } from '@/api/collection';
import { useCollection } from '@/api/collections';
import type { Setting } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import type { Key } from '@/i18n';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { PageHead } from '@/parts/Page';
import { StatusBadge } from '@/parts/StatusBadge';
import type { Column, Facet } from '@/parts/table/columns';
import { DataTable } from '@/parts/table/DataTable';
import { infoOf } from './catalog';
import { troubleOf } from './state';
import { helpOf } from './texts';
import { effectiveValue, isChanged } from './value';

export function Screen() {
  const snapshot = useCollection(kinds.settings);
  const columns = useMemo(() => settingColumns(), []);
  const facets = useMemo(() => settingFacets(), []);
  return (
    <>
      <PageHead title={t('settings.title')} />
      <DataTable
        id="settings"
        snapshot={snapshot}
        rows={snapshot.items}
        columns={columns}
        facets={facets}
        keyOf={keyOf}
        nameOf={(setting) => setting.metadata.name}
        defaultSort={{ column: 'name', descending: false }}
        empty={<Blank icon={IconSettings} title={t('common.empty')} />}
      />
    </>
  );
}

function settingColumns(): Column<Setting>[] {
  return [
    { id: 'name', title: t('common.name'), value: (setting) => setting.metadata.name, cell: (setting) => <Link to={`/settings/${setting.metadata.name}`}>{setting.metadata.name}</Link>, width: 'minmax(220px, 1.6fr)', phone: true },
    { id: 'value', title: t('common.value'), value: shownValue, cell: (setting) => shownValue(setting) || '–', width: 'minmax(140px, 1.6fr)' },
    { id: 'changed', title: t('settings.origin'), value: originOf, cell: (setting) => <Origin setting={setting} />, width: 'minmax(130px, 0.8fr)', phone: true },
    { id: 'effect', title: t('settings.effect'), value: effectOf, width: 'minmax(130px, 0.8fr)' },
    { id: 'help', title: t('settings.help'), value: (setting) => helpOf(setting.metadata.name), width: 'minmax(200px, 2.4fr)' },
  ];
}

function settingFacets(): Facet<Setting>[] {
  return [
    { id: 'origin', title: t('settings.origin'), values: (setting) => [isChanged(setting) ? 'changed' : 'default'], label: (value) => t(`settings.${value}` as Key) },
    { id: 'effect', title: t('settings.effect'), values: (setting) => [infoOf(setting.metadata.name).effect], label: (value) => t(`settings.${value}` as Key) },
  ];
}

function shownValue(setting: Setting): string {
  // A private key has no place in a list.
  return setting.metadata.name === 'ssl-certificates' && isChanged(setting) ? '…' : effectiveValue(setting);
}

function originOf(setting: Setting): string {
  return t(isChanged(setting) ? 'settings.changed' : 'settings.default');
}

function effectOf(setting: Setting): string {
  return t(`settings.${infoOf(setting.metadata.name).effect}`);
}

function Origin({ setting }: { setting: Setting }) {
  const trouble = troubleOf(setting);
  if (trouble) return <StatusBadge tone="warn" label={originOf(setting)} hint={trouble} />;
  return <StatusBadge tone={isChanged(setting) ? 'ok' : 'idle'} label={originOf(setting)} />;
}

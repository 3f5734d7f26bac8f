import { Modal, Text, TextInput, useMantineColorScheme } from '@mantine/core';
import { IconFileDownload, IconLogout, IconMoon, IconSearch, IconSun } from '@tabler/icons-react';
import { useNavigate } from '@tanstack/react-router';
import { useDeferredValue, useEffect, useMemo, useRef, useState, type KeyboardEvent } from 'react';
import { useCollection } from '@/api/collections';
import { useDiscovery } from '@/api/discovery';
import { kinds } from '@/api/kinds';
import { t } from '@/i18n';
import { sayError } from '@/parts/notify';
import { downloadKubeconfig } from './kubeconfig';
import { closePalette } from './palette';
import classes from './Palette.module.css';
import type { Entry } from './paletteEntries';
import { allEntries, matching } from './paletteEntries';
import { useAreas } from './useAreas';
import { signOut } from './session';

/** Finds any object, screen and action by a few letters. */
export function Palette() {
  const [query, setQuery] = useState('');
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const navigate = useNavigate();
  const entries = useEntries();
  const wanted = useDeferredValue(query);
  const found = useMemo(() => matching(entries, wanted), [entries, wanted]);
  const current = Math.min(chosen, found.length - 1);

  useEffect(() => {
    list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' });
  }, [current]);

  const take = (entry: Entry | undefined) => {
    if (!entry) return;
    closePalette();
    if (entry.to) void navigate({ to: entry.to });
    entry.run?.();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setChosen((current + step + found.length) % Math.max(1, found.length));
    }
    // Whoever types fast means what the field says, also before the list says it.
    if (event.key === 'Enter') take(wanted === query ? found[current] : matching(entries, query)[0]);
  };

  return (
    <Modal opened onClose={closePalette} withCloseButton={false} centered={false} yOffset="12vh" size="lg" aria-label={t('app.search')}>
      <TextInput
        data-autofocus
        size="md"
        variant="unstyled"
        leftSection={<IconSearch size={18} aria-hidden />}
        placeholder={t('palette.hint')}
        aria-label={t('app.search')}
        role="combobox"
        aria-expanded
        aria-controls="palette-list"
        aria-activedescendant={found[current] ? `palette-${current}` : undefined}
        value={query}
        onChange={(event) => { setQuery(event.currentTarget.value); setChosen(0); }}
        onKeyDown={onKey}
      />
      <div className={classes.list} ref={list} id="palette-list" role="listbox" aria-label={t('app.search')}>
        {found.length === 0 && <Text c="dimmed" size="sm" p="md">{t('common.noMatch')}</Text>}
        {found.map((entry, index) => {
          const Symbol = entry.icon;
          return (
            <div key={entry.id} role="presentation">
              {(index === 0 || found[index - 1]?.group !== entry.group) && <div className={classes.group} role="presentation">{entry.group}</div>}
              <button type="button" id={`palette-${index}`} className={classes.entry} role="option" aria-selected={index === current} tabIndex={-1} onMouseMove={() => setChosen(index)} onClick={() => take(entry)}>
                <Symbol size={17} stroke={1.7} aria-hidden />
                {entry.label}
                <span className={classes.detail}>{entry.detail}</span>
              </button>
            </div>
          );
        })}
      </div>
    </Modal>
  );
}

function useEntries(): Entry[] {
  const areas = useAreas();
  const machines = useCollection(kinds.machines).items;
  const volumes = useCollection(kinds.volumes).items;
  const images = useCollection(kinds.images).items;
  const nodes = useCollection(kinds.nodes).items;
  const discovered = useDiscovery().data;
  const { setColorScheme } = useMantineColorScheme();
  return useMemo(() => {
    const group = t('palette.actions');
    const actions: Entry[] = [
      { id: 'do kubeconfig', label: t('app.downloadKubeconfig'), detail: '', group, icon: IconFileDownload, run: () => void downloadKubeconfig().catch((error: unknown) => sayError(t('app.downloadKubeconfig'), error)) },
      { id: 'do light', label: `${t('app.appearance')}: ${t('app.light')}`, detail: '', group, icon: IconSun, run: () => setColorScheme('light') },
      { id: 'do dark', label: `${t('app.appearance')}: ${t('app.dark')}`, detail: '', group, icon: IconMoon, run: () => setColorScheme('dark') },
      { id: 'do sign out', label: t('app.signOut'), detail: '', group, icon: IconLogout, run: () => void signOut() },
    ];
    return allEntries({ areas, machines, volumes, images, nodes, kinds: discovered ?? [], actions });
  }, [areas, machines, volumes, images, nodes, discovered, setColorScheme]);
}

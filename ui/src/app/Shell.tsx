import { AppShell, Burger } from '@mantine/core';
import { useDisclosure, useMediaQuery } from '@mantine/hooks';
import { IconSearch } from '@tabler/icons-react';
import { Link, useLocation } from '@tanstack/react-router';
import { lazy, Suspense, useEffect, type ReactNode } from 'react';
import { t } from '@/i18n';
import { ConnectionState } from './ConnectionState';
import { Navigation } from './Navigation';
import { NamespacePicker } from './NamespacePicker';
import { openPalette, usePaletteOpen } from './palette';
import classes from './Shell.module.css';
import { UserMenu } from './UserMenu';

const Palette = lazy(() => import('./Palette').then((module) => ({ default: module.Palette })));

export function Shell({ children }: { children: ReactNode }) {
  const [opened, { toggle, close }] = useDisclosure();
  const narrow = useMediaQuery('(max-width: 640px)');
  const { pathname } = useLocation();
  const searching = usePaletteOpen();
  useEffect(close, [pathname, close]);

  return (
    <AppShell header={{ height: 54 }} navbar={{ width: 228, breakpoint: 'md', collapsed: { mobile: !opened } }} padding={0}>
      <a className={classes.skip} href="#content">{t('app.skip')}</a>
      <AppShell.Header className={classes.shellHeader}>
        <div className={classes.header}>
          <Burger opened={opened} onClick={toggle} hiddenFrom="md" size="sm" aria-label={t('app.toggleNavigation')} />
          <Link to="/" className={classes.brand}>
            <img src={`${import.meta.env.BASE_URL}croft.svg`} alt={narrow ? 'Croft' : ''} />
            {!narrow && 'Croft'}
          </Link>
          <NamespacePicker />
          <span className={classes.grow} />
          <ConnectionState compact={narrow ?? false} />
          <button type="button" className={classes.search} onClick={openPalette} aria-label={t('app.search')}>
            <IconSearch size={16} aria-hidden />
            <span>{t('app.searchShort')}</span>
            <kbd>Ctrl K</kbd>
          </button>
          <UserMenu />
        </div>
      </AppShell.Header>
      <AppShell.Navbar className={classes.navbar}>
        <Navigation pathname={pathname} />
      </AppShell.Navbar>
      <AppShell.Main className={classes.main}>
        <div id="content" className={classes.content} tabIndex={-1}>{children}</div>
      </AppShell.Main>
      {searching && <Suspense><Palette /></Suspense>}
    </AppShell>
  );
}

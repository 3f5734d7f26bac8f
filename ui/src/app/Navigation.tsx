import { Link } from '@tanstack/react-router';
import type { Key } from '@/i18n';
import { t } from '@/i18n';
import type { Section } from './areas';
import classes from './Shell.module.css';
import { useAreas } from './useAreas';

const sections: { id: Section; title: Key | null }[] = [
  { id: 'top', title: null },
  { id: 'work', title: 'app.sectionWork' },
  { id: 'data', title: 'app.sectionData' },
  { id: 'network', title: 'app.sectionNetwork' },
  { id: 'cluster', title: 'app.sectionCluster' },
];

export function Navigation({ pathname }: { pathname: string }) {
  const areas = useAreas();
  return (
    <nav aria-label={t('app.navigation')}>
      {sections.map((section) => {
        const entries = areas.filter((area) => area.section === section.id);
        if (entries.length === 0) return null;
        return (
          <div key={section.id}>
            {section.title && <div className={classes.section}>{t(section.title)}</div>}
            {entries.map(({ id, path, icon: Symbol, title, screens }) => {
              const active = screens.some((screen) => isBelow(pathname, screen.path));
              return (
                <Link key={id} to={path} className={classes.entry} data-active={active || undefined} aria-current={active ? 'page' : undefined}>
                  <Symbol size={18} stroke={1.7} aria-hidden />
                  {t(title)}
                </Link>
              );
            })}
          </div>
        );
      })}
    </nav>
  );
}

/** Whether an address is of a route or below its fixed part: `/backups/default/web` of `/backups/$namespace/$name`. */
function isBelow(pathname: string, route: string): boolean {
  const fixed = route.split('/$')[0] ?? route;
  return pathname === fixed || pathname.startsWith(`${fixed}/`);
}

import type { Icon } from '@tabler/icons-react';
import type { ComponentType } from 'react';
import type { Key } from '@/i18n';

/** A screen is loaded when its address is visited; its module exports it as `Screen`. */
export interface ScreenRoute {
  path: string;
  load: () => Promise<{ Screen: ComponentType }>;
}

export type Section = 'top' | 'work' | 'data' | 'network' | 'cluster';

/** One entry of the navigation and the screens below it. */
export interface Area {
  id: string;
  section: Section;
  title: Key;
  icon: Icon;
  path: string;
  screens: ScreenRoute[];
  /** A path of the server that one must be allowed to read for this area to be of use. */
  needs?: string;
}

/** A detail with its tabs: `/volumes/$namespace/$name` and `…/$tab`. */
export function detail(path: string, load: ScreenRoute['load']): ScreenRoute[] {
  return [{ path, load }, { path: `${path}/$tab`, load }];
}

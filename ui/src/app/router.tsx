import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from '@tanstack/react-router';
import { areas } from './areas';
import { NotFound } from './NotFound';
import { Root } from './Root';
import { Crash } from './Crash';

const root = createRootRoute({ component: Root, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: () => {
    // The router throws a redirect to leave the route.
    throw redirect({ to: areas[0]?.path ?? '/machines', replace: true });
  },
});

const screens = areas.flatMap((area) =>
  area.screens.map(({ path, load }) =>
    createRoute({
      getParentRoute: () => root,
      path,
      component: lazyRouteComponent(load, 'Screen'),
    }),
  ),
);

export const router = createRouter({
  routeTree: root.addChildren([home, ...screens]),
  basepath: import.meta.env.BASE_URL,
  defaultPreload: 'intent',
  defaultErrorComponent: Crash,
  scrollRestoration: true,
});

import { IconCategory, IconDatabase, IconDeviceDesktop, IconLayoutDashboard, IconPhoto, IconServer } from '@tabler/icons-react';
import * as dashboard from '@/screens/dashboard/Dashboard';
import type { Area } from './area';
import { detail } from './area';
import { clusterAreas } from './clusterAreas';
import { protectionAreas, sourceAreas } from './protectionAreas';

export type { Area, Section } from './area';

export const areas: Area[] = [
  {
    id: 'dashboard',
    section: 'top',
    title: 'dashboard.title',
    icon: IconLayoutDashboard,
    path: '/overview',
    // Part of the start: everybody sees it first, and the others are made of the same parts.
    screens: [{ path: '/overview', load: () => Promise.resolve(dashboard) }],
  },
  {
    id: 'machines',
    section: 'work',
    title: 'machines.title',
    icon: IconDeviceDesktop,
    path: '/machines',
    screens: [
      { path: '/machines', load: () => import('@/screens/machines/MachineList') },
      { path: '/machines/new', load: () => import('@/screens/machines/create/CreateMachine') },
      ...detail('/machines/$namespace/$name', () => import('@/screens/machines/detail/MachineDetail')),
    ],
  },
  {
    id: 'images',
    section: 'work',
    title: 'images.title',
    icon: IconPhoto,
    path: '/images',
    screens: [
      { path: '/images', load: () => import('@/screens/images/ImageList') },
      { path: '/images/new', load: () => import('@/screens/images/NewImage') },
      ...detail('/images/$namespace/$name', () => import('@/screens/images/ImageDetail')),
    ],
  },
  ...sourceAreas,
  {
    id: 'volumes',
    section: 'data',
    title: 'volumes.title',
    icon: IconDatabase,
    path: '/volumes',
    screens: [
      { path: '/volumes', load: () => import('@/screens/volumes/VolumeList') },
      ...detail('/volumes/$namespace/$name', () => import('@/screens/volumes/VolumeDetail')),
    ],
  },
  ...protectionAreas,
  {
    id: 'hosts',
    section: 'cluster',
    title: 'hosts.title',
    icon: IconServer,
    path: '/hosts',
    screens: [
      { path: '/hosts', load: () => import('@/screens/hosts/HostList') },
      ...detail('/hosts/$name', () => import('@/screens/hosts/HostDetail')),
    ],
  },
  ...clusterAreas,
  {
    id: 'explorer',
    section: 'cluster',
    title: 'explorer.title',
    icon: IconCategory,
    path: '/explorer',
    screens: [
      { path: '/explorer', load: () => import('@/screens/explorer/KindsScreen') },
      { path: '/explorer/$group/$plural', load: () => import('@/screens/explorer/ObjectsScreen') },
      { path: '/explorer/$group/$plural/new', load: () => import('@/screens/explorer/NewObject') },
      ...detail('/explorer/$group/$plural/$namespace/$name', () => import('@/screens/explorer/ObjectScreen')),
    ],
  },
];

import { IconFolders, IconHistory, IconInfoCircle, IconLifebuoy, IconNetwork, IconPuzzle, IconSettings, IconTopologyStar3, IconUsers } from '@tabler/icons-react';
import { auditPath } from '@/api/audit';
import type { Area } from './area';
import { detail } from './area';

/** Networks, and what is about the cluster itself. */
export const clusterAreas: Area[] = [
  {
    id: 'networks',
    section: 'network',
    title: 'networks.title',
    icon: IconNetwork,
    path: '/networks',
    screens: [
      { path: '/networks', load: () => import('@/screens/networks/NetworkList') },
      ...detail('/networks/$namespace/$name', () => import('@/screens/networks/NetworkDetail')),
    ],
  },
  {
    id: 'clusterNetworks',
    section: 'network',
    title: 'clusterNetworks.title',
    icon: IconTopologyStar3,
    path: '/cluster-networks',
    screens: [
      { path: '/cluster-networks', load: () => import('@/screens/clusterNetworks/ClusterNetworkList') },
      ...detail('/cluster-networks/$name', () => import('@/screens/clusterNetworks/ClusterNetworkDetail')),
    ],
  },
  {
    id: 'namespaces',
    section: 'cluster',
    title: 'namespaces.title',
    icon: IconFolders,
    path: '/namespaces',
    screens: [
      { path: '/namespaces', load: () => import('@/screens/namespaces/NamespaceList') },
      ...detail('/namespaces/$name', () => import('@/screens/namespaces/NamespaceDetail')),
    ],
  },
  {
    id: 'access',
    section: 'cluster',
    title: 'access.title',
    icon: IconUsers,
    path: '/access',
    screens: [
      { path: '/access', load: () => import('@/screens/access/AccessScreen') },
      { path: '/access/$tab', load: () => import('@/screens/access/AccessScreen') },
      { path: '/access/users/$name', load: () => import('@/screens/access/UserDetail') },
      ...detail('/access/cluster-roles/$name', () => import('@/screens/access/RoleDetail')),
      ...detail('/access/roles/$namespace/$name', () => import('@/screens/access/RoleDetail')),
    ],
  },
  {
    id: 'audit',
    section: 'cluster',
    title: 'audit.title',
    icon: IconHistory,
    path: '/audit',
    needs: auditPath,
    screens: [{ path: '/audit', load: () => import('@/screens/audit/AuditScreen') }],
  },
  {
    id: 'settings',
    section: 'cluster',
    title: 'settings.title',
    icon: IconSettings,
    path: '/settings',
    screens: [
      { path: '/settings', load: () => import('@/screens/settings/SettingList') },
      ...detail('/settings/$name', () => import('@/screens/settings/SettingDetail')),
    ],
  },
  {
    id: 'addons',
    section: 'cluster',
    title: 'addons.title',
    icon: IconPuzzle,
    path: '/addons',
    screens: [
      { path: '/addons', load: () => import('@/screens/addons/AddonList') },
      ...detail('/addons/$namespace/$name', () => import('@/screens/addons/AddonDetail')),
    ],
  },
  {
    id: 'support',
    section: 'cluster',
    title: 'support.title',
    icon: IconLifebuoy,
    path: '/support',
    screens: [
      { path: '/support', load: () => import('@/screens/support/SupportList') },
      ...detail('/support/$namespace/$name', () => import('@/screens/support/SupportDetail')),
    ],
  },
  {
    id: 'about',
    section: 'cluster',
    title: 'about.title',
    icon: IconInfoCircle,
    path: '/about',
    screens: [{ path: '/about', load: () => import('@/screens/about/About') }],
  },
];

import { IconCalendarTime, IconCamera, IconCloudCog, IconCloudUpload, IconKey, IconStack2, IconTemplate } from '@tabler/icons-react';
import type { Area } from './area';
import { detail } from './area';

/** What machines are made from. */
export const sourceAreas: Area[] = [
  {
    id: 'templates',
    section: 'work',
    title: 'templates.title',
    icon: IconTemplate,
    path: '/templates',
    screens: [
      { path: '/templates', load: () => import('@/screens/templates/TemplateList') },
      { path: '/templates/new', load: () => import('@/screens/templates/NewTemplate') },
      { path: '/templates/$namespace/$name/new-version', load: () => import('@/screens/templates/NewVersion') },
      ...detail('/templates/$namespace/$name', () => import('@/screens/templates/TemplateDetail')),
      ...detail('/template-versions/$namespace/$name', () => import('@/screens/templates/VersionDetail')),
    ],
  },
  {
    id: 'keys',
    section: 'work',
    title: 'keys.title',
    icon: IconKey,
    path: '/keys',
    screens: [
      { path: '/keys', load: () => import('@/screens/keys/KeyList') },
      ...detail('/keys/$namespace/$name', () => import('@/screens/keys/KeyDetail')),
    ],
  },
  {
    id: 'cloudConfigs',
    section: 'work',
    title: 'cloudConfigs.title',
    icon: IconCloudCog,
    path: '/cloud-configs',
    screens: [
      { path: '/cloud-configs', load: () => import('@/screens/cloudConfigs/CloudConfigList') },
      { path: '/cloud-configs/new', load: () => import('@/screens/cloudConfigs/NewCloudConfig') },
      ...detail('/cloud-configs/$namespace/$name', () => import('@/screens/cloudConfigs/CloudConfigDetail')),
    ],
  },
];

/** What keeps data from being lost, and where it lives. */
export const protectionAreas: Area[] = [
  {
    id: 'snapshots',
    section: 'data',
    title: 'snapshots.title',
    icon: IconCamera,
    path: '/snapshots',
    screens: [
      { path: '/snapshots', load: () => import('@/screens/snapshots/SnapshotList') },
      { path: '/volume-snapshots', load: () => import('@/screens/snapshots/VolumeSnapshotList') },
      ...detail('/snapshots/$namespace/$name', () => import('@/screens/snapshots/SnapshotDetail')),
      ...detail('/volume-snapshots/$namespace/$name', () => import('@/screens/snapshots/VolumeSnapshotDetail')),
    ],
  },
  {
    id: 'backups',
    section: 'data',
    title: 'backups.title',
    icon: IconCloudUpload,
    path: '/backups',
    screens: [
      { path: '/backups', load: () => import('@/screens/backups/BackupList') },
      { path: '/restores', load: () => import('@/screens/backups/RestoreList') },
      { path: '/backup-volumes', load: () => import('@/screens/backups/StoredList') },
      { path: '/backup-target', load: () => import('@/screens/backups/target/TargetScreen') },
      ...detail('/backups/$namespace/$name', () => import('@/screens/backups/BackupDetail')),
      ...detail('/restores/$namespace/$name', () => import('@/screens/backups/RestoreDetail')),
      ...detail('/backup-volumes/$namespace/$name', () => import('@/screens/backups/StoredDetail')),
    ],
  },
  {
    id: 'schedules',
    section: 'data',
    title: 'schedules.title',
    icon: IconCalendarTime,
    path: '/schedules',
    screens: [
      { path: '/schedules', load: () => import('@/screens/schedules/ScheduleList') },
      ...detail('/schedules/$namespace/$name', () => import('@/screens/schedules/ScheduleDetail')),
    ],
  },
  {
    id: 'storageClasses',
    section: 'data',
    title: 'storageClasses.title',
    icon: IconStack2,
    path: '/storage-classes',
    screens: [
      { path: '/storage-classes', load: () => import('@/screens/storageClasses/StorageClassList') },
      { path: '/storage-classes/new', load: () => import('@/screens/storageClasses/NewStorageClass') },
      ...detail('/storage-classes/$name', () => import('@/screens/storageClasses/StorageClassDetail')),
    ],
  },
];

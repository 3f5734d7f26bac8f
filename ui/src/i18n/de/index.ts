import type { en } from '../en';
import type { Translation } from '../message';
import { access, roleHelp } from './access';
import { app } from './app';
import { audit } from './audit';
import { backups } from './backups';
import { charts } from './charts';
import { cloudConfigs } from './cloudConfigs';
import { about, addonHelp, addons, support } from './cluster';
import { common } from './common';
import { console } from './console';
import { create } from './create';
import { dashboard } from './dashboard';
import { detail } from './detail';
import { explorer } from './explorer';
import { forms } from './forms';
import { hosts } from './hosts';
import { images } from './images';
import { keys } from './keys';
import { machines } from './machines';
import { namespaces } from './namespaces';
import { clusterNetworks, networks } from './networks';
import { palette } from './palette';
import { schedules } from './schedules';
import { settingFields, settingHelp, settings } from './settings';
import { snapshots } from './snapshots';
import { storageClasses } from './storageClasses';
import { templates } from './templates';
import { volumes } from './volumes';

export const de: Translation<typeof en> = {
  about,
  access,
  addonHelp,
  addons,
  app,
  audit,
  backups,
  charts,
  cloudConfigs,
  clusterNetworks,
  common,
  console,
  create,
  dashboard,
  detail,
  explorer,
  forms,
  hosts,
  images,
  keys,
  machines,
  namespaces,
  networks,
  palette,
  roleHelp,
  schedules,
  settingFields,
  settingHelp,
  settings,
  snapshots,
  storageClasses,
  support,
  templates,
  volumes,
};

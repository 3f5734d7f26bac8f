import type { PolicyRule, Role } from '@/api/rbac';
import type { Key } from '@/i18n';
import { t } from '@/i18n';
import { en } from '@/i18n/en';

/** What roles allow, in plain words. */

export type Level = 'all' | 'change' | 'see' | 'some';

const reading = ['get', 'list', 'watch'];
const writing = ['create', 'update', 'patch', 'delete'];

export function levelOf(verbs: readonly string[]): Level {
  if (verbs.includes('*')) return 'all';
  if (writing.every((verb) => verbs.includes(verb))) return 'change';
  return verbs.every((verb) => reading.includes(verb)) ? 'see' : 'some';
}

/** "see", "see and change", or the verbs themselves where they are no such set. */
export function levelText(rule: PolicyRule): string {
  const level = levelOf(rule.verbs);
  return level === 'some' ? rule.verbs.join(', ') : t(`access.level_${level}`);
}

export function objectsText(rule: PolicyRule): string {
  if (rule.nonResourceURLs?.length) return rule.nonResourceURLs.join(', ');
  if (rule.resources?.includes('*')) return rule.apiGroups?.includes('*') ? t('access.everything') : t('access.allOf', { groups: rule.apiGroups?.map((group) => group || 'core').join(', ') ?? '' });
  return rule.resources?.join(', ') ?? '';
}

/** A sentence about a role that came with the server; for others how much it reaches. */
export function roleText(role: Role): string {
  const { name } = role.metadata;
  if (name in en.roleHelp) return t(`roleHelp.${name}` as Key);
  const rules = role.rules ?? [];
  const kinds = new Set(rules.flatMap((rule) => rule.resources ?? []));
  return t('access.roleSummary', { count: kinds.size });
}

export function isBuiltInRole(role: Role): boolean {
  return role.metadata.labels?.['kubernetes.io/bootstrapping'] === 'rbac-defaults';
}

/** What a role of one's own can be put together from. */
export interface Bundle {
  id: string;
  label: Key;
  group: string;
  resources: string[];
  /** For seeing, beside reading the objects. */
  seeing?: PolicyRule[];
  /** For changing, beside writing the objects. */
  changing?: PolicyRule[];
}

const subresources = 'subresources.kubevirt.io';

export const bundles: readonly Bundle[] = [
  {
    id: 'machines',
    label: 'machines.title',
    group: 'kubevirt.io',
    resources: ['virtualmachines', 'virtualmachineinstances'],
    seeing: [{ apiGroups: [subresources], resources: ['virtualmachineinstances/guestosinfo', 'virtualmachineinstances/filesystemlist', 'virtualmachineinstances/userlist'], verbs: ['get'] }],
    changing: [
      { apiGroups: [subresources], resources: ['virtualmachineinstances/vnc', 'virtualmachineinstances/console', 'virtualmachineinstances/portforward'], verbs: ['get'] },
      {
        apiGroups: [subresources],
        resources: ['virtualmachines/start', 'virtualmachines/stop', 'virtualmachines/restart', 'virtualmachines/addvolume', 'virtualmachines/removevolume', 'virtualmachineinstances/pause', 'virtualmachineinstances/unpause', 'virtualmachineinstances/softreboot', 'virtualmachineinstances/reset'],
        verbs: ['update'],
      },
    ],
  },
  { id: 'images', label: 'images.title', group: 'harvesterhci.io', resources: ['virtualmachineimages'] },
  { id: 'volumes', label: 'volumes.title', group: '', resources: ['persistentvolumeclaims'] },
  { id: 'volumeSnapshots', label: 'access.volumeSnapshots', group: 'snapshot.storage.k8s.io', resources: ['volumesnapshots'] },
  { id: 'backups', label: 'access.backups', group: 'harvesterhci.io', resources: ['virtualmachinebackups', 'virtualmachinerestores', 'schedulevmbackups'] },
  { id: 'templates', label: 'access.templates', group: 'harvesterhci.io', resources: ['virtualmachinetemplates', 'virtualmachinetemplateversions'] },
  { id: 'keys', label: 'access.keys', group: 'harvesterhci.io', resources: ['keypairs'] },
  { id: 'networks', label: 'networks.title', group: 'k8s.cni.cncf.io', resources: ['network-attachment-definitions'] },
  { id: 'secrets', label: 'access.secrets', group: '', resources: ['secrets'] },
  { id: 'events', label: 'common.events', group: '', resources: ['events'] },
  { id: 'namespaces', label: 'namespaces.title', group: '', resources: ['namespaces'] },
  { id: 'hosts', label: 'hosts.title', group: '', resources: ['nodes'] },
  { id: 'settings', label: 'settings.title', group: 'harvesterhci.io', resources: ['settings'] },
  { id: 'storageClasses', label: 'access.storageClasses', group: 'storage.k8s.io', resources: ['storageclasses'] },
];

export type Choice = Record<string, 'none' | 'see' | 'change'>;

export function rulesFor(choice: Choice): PolicyRule[] {
  return bundles.flatMap((bundle) => {
    const level = choice[bundle.id] ?? 'none';
    if (level === 'none') return [];
    const verbs = level === 'change' ? [...reading, ...writing] : reading;
    const own: PolicyRule = { apiGroups: [bundle.group], resources: bundle.resources, verbs: [...verbs] };
    return [own, ...(bundle.seeing ?? []), ...(level === 'change' ? (bundle.changing ?? []) : [])];
  });
}

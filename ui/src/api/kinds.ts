import type { KubeObject } from './types';
import type {
  Addon,
  BlockDevice,
  ClusterNetwork,
  LinkMonitor,
  NetworkAttachmentDefinition,
  ResourceQuota,
  SnapshotQuota,
  SupportBundle,
  VlanConfig,
  VlanStatus,
} from './cluster';
import type {
  Event,
  Namespace,
  Node,
  PersistentVolumeClaim,
  Secret,
  StorageClass,
} from './core';
import type {
  KeyPair,
  ScheduleVMBackup,
  Setting,
  VirtualMachineBackup,
  VirtualMachineImage,
  VirtualMachineRestore,
  VirtualMachineTemplate,
  VirtualMachineTemplateVersion,
} from './harvester';
import type { VirtualMachine, VirtualMachineInstance } from './kubevirt';
import type { Role, RoleBinding } from './rbac';
import type { BackupTarget, BackupVolume, ConfigMap, LonghornBackup, LonghornSetting, VolumeSnapshot, VolumeSnapshotClass } from './storage';

/** Where the objects of one kind are, and what they look like. */
export interface Kind<T extends KubeObject = KubeObject> {
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  /** Only for the type checker: says what an object of this kind is. */
  readonly shape?: T;
}

function define<T extends KubeObject>(apiVersion: string, kind: string, plural: string, namespaced = true): Kind<T> {
  const slash = apiVersion.indexOf('/');
  return {
    group: slash < 0 ? '' : apiVersion.slice(0, slash),
    version: apiVersion.slice(slash + 1),
    plural,
    kind,
    namespaced,
  };
}

const harvester = 'harvesterhci.io/v1beta1';
const network = 'network.harvesterhci.io/v1beta1';
const rbac = 'rbac.authorization.k8s.io/v1';
const longhorn = 'longhorn.io/v1beta2';

export const kinds = {
  machines: define<VirtualMachine>('kubevirt.io/v1', 'VirtualMachine', 'virtualmachines'),
  instances: define<VirtualMachineInstance>('kubevirt.io/v1', 'VirtualMachineInstance', 'virtualmachineinstances'),
  images: define<VirtualMachineImage>(harvester, 'VirtualMachineImage', 'virtualmachineimages'),
  backups: define<VirtualMachineBackup>(harvester, 'VirtualMachineBackup', 'virtualmachinebackups'),
  restores: define<VirtualMachineRestore>(harvester, 'VirtualMachineRestore', 'virtualmachinerestores'),
  schedules: define<ScheduleVMBackup>(harvester, 'ScheduleVMBackup', 'schedulevmbackups'),
  templates: define<VirtualMachineTemplate>(harvester, 'VirtualMachineTemplate', 'virtualmachinetemplates'),
  templateVersions: define<VirtualMachineTemplateVersion>(harvester, 'VirtualMachineTemplateVersion', 'virtualmachinetemplateversions'),
  keyPairs: define<KeyPair>(harvester, 'KeyPair', 'keypairs'),
  settings: define<Setting>(harvester, 'Setting', 'settings', false),
  blockDevices: define<BlockDevice>(harvester, 'BlockDevice', 'blockdevices'),
  addons: define<Addon>(harvester, 'Addon', 'addons'),
  supportBundles: define<SupportBundle>(harvester, 'SupportBundle', 'supportbundles'),
  networks: define<NetworkAttachmentDefinition>('k8s.cni.cncf.io/v1', 'NetworkAttachmentDefinition', 'network-attachment-definitions'),
  volumes: define<PersistentVolumeClaim>('v1', 'PersistentVolumeClaim', 'persistentvolumeclaims'),
  volumeSnapshots: define<VolumeSnapshot>('snapshot.storage.k8s.io/v1', 'VolumeSnapshot', 'volumesnapshots'),
  volumeSnapshotClasses: define<VolumeSnapshotClass>('snapshot.storage.k8s.io/v1', 'VolumeSnapshotClass', 'volumesnapshotclasses', false),
  backupTargets: define<BackupTarget>(longhorn, 'BackupTarget', 'backuptargets'),
  backupVolumes: define<BackupVolume>(longhorn, 'BackupVolume', 'backupvolumes'),
  volumeBackups: define<LonghornBackup>(longhorn, 'Backup', 'backups'),
  longhornSettings: define<LonghornSetting>(longhorn, 'Setting', 'settings'),
  storageClasses: define<StorageClass>('storage.k8s.io/v1', 'StorageClass', 'storageclasses', false),
  secrets: define<Secret>('v1', 'Secret', 'secrets'),
  configMaps: define<ConfigMap>('v1', 'ConfigMap', 'configmaps'),
  namespaces: define<Namespace>('v1', 'Namespace', 'namespaces', false),
  nodes: define<Node>('v1', 'Node', 'nodes', false),
  events: define<Event>('v1', 'Event', 'events'),
  resourceQuotas: define<ResourceQuota>('v1', 'ResourceQuota', 'resourcequotas'),
  clusterRoleBindings: define<RoleBinding>(rbac, 'ClusterRoleBinding', 'clusterrolebindings', false),
  roleBindings: define<RoleBinding>(rbac, 'RoleBinding', 'rolebindings'),
  clusterRoles: define<Role>(rbac, 'ClusterRole', 'clusterroles', false),
  roles: define<Role>(rbac, 'Role', 'roles'),
  snapshotQuotas: define<SnapshotQuota>(harvester, 'ResourceQuota', 'resourcequotas'),
  clusterNetworks: define<ClusterNetwork>(network, 'ClusterNetwork', 'clusternetworks', false),
  vlanConfigs: define<VlanConfig>(network, 'VlanConfig', 'vlanconfigs', false),
  vlanStatuses: define<VlanStatus>(network, 'VlanStatus', 'vlanstatuses', false),
  linkMonitors: define<LinkMonitor>(network, 'LinkMonitor', 'linkmonitors', false),
} as const;

export function apiVersionOf(kind: Kind): string {
  return kind.group ? `${kind.group}/${kind.version}` : kind.version;
}

/** A name for a kind that is the same wherever it is met: `virtualmachines.kubevirt.io`. */
export function kindId(kind: Kind): string {
  return kind.group ? `${kind.plural}.${kind.group}` : kind.plural;
}

export function listPath(kind: Kind, namespace?: string): string {
  const root = kind.group ? `/apis/${kind.group}/${kind.version}` : `/api/${kind.version}`;
  const scope = kind.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  return `${root}${scope}/${kind.plural}`;
}

export function objectPath(kind: Kind, namespace: string | undefined, name: string): string {
  return `${listPath(kind, namespace)}/${encodeURIComponent(name)}`;
}

export function stevePath(kind: Kind): string {
  return `/v1/harvester/${kind.group ? `${kind.group}.` : ''}${kind.plural}`;
}

import type { DiskBus, RunStrategy } from '@/api/kubevirt';
import { randomSuffix } from '@/parts/form/names';

/** What the form for a new machine holds. */

export type Firmware = 'bios' | 'uefi' | 'secureBoot';

/** Where a disk comes from. */
export type DiskSource = 'image' | 'blank' | 'volume' | 'container' | 'cdrom';

export interface DiskForm {
  id: string;
  source: DiskSource;
  /** `namespace/name` of the image, for `image` and `cdrom`. */
  image: string;
  volume: string;
  container: string;
  size: string;
  bus: DiskBus;
  storageClass: string;
}

export interface NicForm {
  id: string;
  /** '' is the default network, else `namespace/name` of a NetworkAttachmentDefinition. */
  network: string;
  model: string;
  mac: string;
}

export interface MachineForm {
  name: string;
  namespace: string;
  description: string;
  cpus: number;
  memory: string;
  disks: DiskForm[];
  nics: NicForm[];
  /** Public keys, as they are written into the guest. */
  keys: string[];
  user: string;
  password: string;
  installAgent: boolean;
  userData: string;
  networkData: string;
  firmware: Firmware;
  tpm: boolean;
  runStrategy: RunStrategy;
  hostname: string;
  host: string;
  labels: Record<string, string>;
  hotplug: boolean;
  machineType: string;
  start: boolean;
}

export function newDisk(source: DiskSource, over: Partial<DiskForm> = {}): DiskForm {
  return { id: randomSuffix(), source, image: '', volume: '', container: '', size: '10Gi', bus: source === 'cdrom' ? 'sata' : 'virtio', storageClass: '', ...over };
}

export function newNic(): NicForm {
  return { id: randomSuffix(), network: '', model: 'virtio', mac: '' };
}

export function emptyForm(namespace: string): MachineForm {
  return {
    name: '',
    namespace,
    description: '',
    cpus: 2,
    memory: '2Gi',
    disks: [newDisk('image')],
    nics: [newNic()],
    keys: [],
    user: '',
    password: '',
    installAgent: false,
    userData: '',
    networkData: '',
    firmware: 'bios',
    tpm: false,
    runStrategy: 'RerunOnFailure',
    hostname: '',
    host: '',
    labels: {},
    hotplug: false,
    machineType: '',
    start: true,
  };
}

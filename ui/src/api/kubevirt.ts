import type { Condition, KubeObject, ObjectMeta } from './types';

/** The parts that the page reads and writes of KubeVirt's machines. */

export type RunStrategy = 'Always' | 'RerunOnFailure' | 'Manual' | 'Once' | 'Halted';
export type DiskBus = 'virtio' | 'scsi' | 'sata' | 'usb';

export interface Disk {
  name: string;
  bootOrder?: number;
  serial?: string;
  shareable?: boolean;
  disk?: { bus?: DiskBus; readonly?: boolean };
  cdrom?: { bus?: DiskBus; readonly?: boolean; tray?: string };
  lun?: { bus?: DiskBus };
}

export interface Volume {
  name: string;
  persistentVolumeClaim?: { claimName: string; hotpluggable?: boolean };
  dataVolume?: { name: string; hotpluggable?: boolean };
  containerDisk?: { image: string };
  cloudInitNoCloud?: CloudInitSource;
  cloudInitConfigDrive?: CloudInitSource;
  emptyDisk?: { capacity: string };
  configMap?: { name: string };
  secret?: { secretName: string };
}

export interface CloudInitSource {
  secretRef?: { name: string };
  networkDataSecretRef?: { name: string };
  userData?: string;
  userDataBase64?: string;
  networkData?: string;
  networkDataBase64?: string;
}

export interface Interface {
  name: string;
  model?: string;
  macAddress?: string;
  masquerade?: Record<string, never>;
  bridge?: Record<string, never>;
  bootOrder?: number;
  state?: string;
}

export interface Network {
  name: string;
  pod?: Record<string, never>;
  multus?: { networkName: string };
}

export interface Domain {
  cpu?: { cores?: number; sockets?: number; threads?: number; maxSockets?: number; model?: string };
  memory?: { guest?: string; maxGuest?: string };
  devices: {
    disks?: Disk[];
    interfaces?: Interface[];
    inputs?: { name: string; type: string; bus: string }[];
    rng?: Record<string, never>;
    tpm?: { persistent?: boolean };
    watchdog?: unknown;
  };
  features?: { acpi?: unknown; smm?: { enabled?: boolean } };
  firmware?: { bootloader?: { efi?: { secureBoot?: boolean; persistent?: boolean }; bios?: unknown }; serial?: string; uuid?: string };
  machine?: { type?: string };
  resources?: { limits?: Record<string, string>; requests?: Record<string, string> };
}

export interface InstanceSpec {
  hostname?: string;
  domain: Domain;
  networks?: Network[];
  volumes?: Volume[];
  nodeSelector?: Record<string, string>;
  affinity?: unknown;
  tolerations?: unknown[];
  evictionStrategy?: string;
  terminationGracePeriodSeconds?: number;
}

export interface VirtualMachine extends KubeObject {
  spec: {
    runStrategy?: RunStrategy;
    running?: boolean;
    template: { metadata?: Partial<ObjectMeta>; spec: InstanceSpec };
    dataVolumeTemplates?: unknown[];
  };
  status?: {
    printableStatus?: string;
    ready?: boolean;
    created?: boolean;
    conditions?: Condition[];
    runStrategy?: string;
    volumeSnapshotStatuses?: { name: string; enabled: boolean; reason?: string }[];
    stateChangeRequests?: { action: string }[];
  };
}

export interface InstanceInterface {
  name?: string;
  mac?: string;
  ipAddress?: string;
  ipAddresses?: string[];
  interfaceName?: string;
  linkState?: string;
  infoSource?: string;
}

export interface VirtualMachineInstance extends KubeObject {
  spec: InstanceSpec;
  status?: {
    phase?: string;
    nodeName?: string;
    conditions?: Condition[];
    interfaces?: InstanceInterface[];
    guestOSInfo?: Record<string, string>;
    currentCPUTopology?: { cores?: number; sockets?: number; threads?: number };
    memory?: { guestCurrent?: string; guestRequested?: string; guestAtBoot?: string };
    volumeStatus?: VolumeStatus[];
    machine?: { type?: string };
    phaseTransitionTimestamps?: { phase: string; phaseTransitionTimestamp: string }[];
  };
}

export interface VolumeStatus {
  name: string;
  target?: string;
  size?: number;
  phase?: string;
  reason?: string;
  message?: string;
  hotplugVolume?: unknown;
  persistentVolumeClaimInfo?: { claimName?: string; capacity?: { storage?: string }; volumeMode?: string };
}

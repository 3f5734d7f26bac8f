import type { Condition, KubeObject, ObjectMeta } from './types';
import type { VirtualMachine } from './kubevirt';

/** The parts that the page reads and writes of Harvester's kinds. */

export interface VirtualMachineImage extends KubeObject {
  spec: {
    displayName: string;
    description?: string;
    sourceType: 'download' | 'upload' | 'export-from-volume' | 'clone' | 'restore';
    url?: string;
    checksum?: string;
    pvcName?: string;
    pvcNamespace?: string;
    retry?: number;
    targetStorageClassName?: string;
    storageClassParameters?: Record<string, string>;
  };
  status?: {
    progress?: number;
    size?: number;
    virtualSize?: number;
    storageClassName?: string;
    failed?: number;
    conditions?: Condition[];
  };
}

export interface BackupError {
  time?: string;
  message?: string;
}

/** One disk of a kept machine. */
export interface VolumeOfBackup {
  name?: string;
  volumeName: string;
  progress?: number;
  readyToUse?: boolean;
  volumeSize?: number;
  longhornBackupName?: string;
  persistentVolumeClaim?: { metadata?: Partial<ObjectMeta>; spec?: { storageClassName?: string } };
  error?: BackupError;
}

export interface VirtualMachineBackup extends KubeObject {
  spec: {
    type?: 'backup' | 'snapshot';
    source: { apiGroup: string; kind: string; name: string };
    fsFreezeDeadline?: string;
  };
  status?: {
    readyToUse?: boolean;
    creationTime?: string;
    progress?: number;
    error?: BackupError;
    conditions?: Condition[];
    sourceUID?: string;
    backupTarget?: { endpoint?: string; bucketName?: string; bucketRegion?: string };
    source?: { metadata?: Partial<ObjectMeta>; spec?: VirtualMachine['spec'] };
    volumeBackups?: VolumeOfBackup[];
  };
}

export interface VirtualMachineRestore extends KubeObject {
  spec: {
    target: { apiGroup: string; kind: string; name: string };
    virtualMachineBackupName: string;
    virtualMachineBackupNamespace: string;
    newVM?: boolean;
    deletionPolicy?: 'delete' | 'retain';
    keepMacAddress?: boolean;
    haltAfterRestore?: boolean;
  };
  status?: {
    complete?: boolean;
    progress?: number;
    conditions?: Condition[];
    restoreTime?: string;
    deletedVolumes?: string[];
    restores?: { volumeName?: string; progress?: number; volumeSize?: number; persistentVolumeClaimSpec?: { metadata?: Partial<ObjectMeta> } }[];
  };
}

export interface ScheduleVMBackup extends KubeObject {
  spec: {
    cron: string;
    retain: number;
    maxFailure: number;
    suspend?: boolean;
    resumeRequest?: boolean;
    vmbackup: { type?: 'backup' | 'snapshot'; source: { apiGroup: string; kind: string; name: string } };
  };
  status?: {
    suspended?: boolean;
    failure?: number;
    conditions?: Condition[];
    vmbackupInfo?: { name: string; readyToUse?: boolean; error?: BackupError; lastProgressUpdate?: string }[];
  };
}

export interface VirtualMachineTemplate extends KubeObject {
  spec: { description?: string; defaultVersionId?: string };
  status?: { defaultVersion?: number; latestVersion?: number };
}

export interface VirtualMachineTemplateVersion extends KubeObject {
  spec: {
    templateId: string;
    description?: string;
    imageId?: string;
    keyPairIds?: string[];
    vm?: { metadata?: Partial<ObjectMeta>; spec: VirtualMachine['spec'] };
  };
  status?: { version?: number; conditions?: Condition[] };
}

export interface KeyPair extends KubeObject {
  spec: { publicKey: string };
  status?: { fingerPrint?: string; conditions?: Condition[] };
}

export interface Setting extends KubeObject {
  value?: string;
  default?: string;
  status?: { conditions?: Condition[] };
}

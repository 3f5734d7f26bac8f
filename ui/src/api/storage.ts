import type { Condition, KubeObject } from './types';

/** The parts that the page reads and writes of snapshots, of Longhorn's backups and of ConfigMaps. */

export interface VolumeSnapshot extends KubeObject {
  spec: {
    source: { persistentVolumeClaimName?: string; volumeSnapshotContentName?: string };
    volumeSnapshotClassName?: string;
  };
  status?: {
    readyToUse?: boolean;
    creationTime?: string;
    restoreSize?: string;
    boundVolumeSnapshotContentName?: string;
    error?: { time?: string; message?: string };
  };
}

export interface VolumeSnapshotClass extends KubeObject {
  driver?: string;
  deletionPolicy?: string;
  parameters?: Record<string, string>;
}

/** Where backups go, as Longhorn calls it. */
export interface BackupTarget extends KubeObject {
  spec?: { backupTargetURL?: string; credentialSecret?: string; pollInterval?: string };
  status?: { available?: boolean; lastSyncedAt?: string; conditions?: Condition[] };
}

/** A volume that the target has backups of. */
export interface BackupVolume extends KubeObject {
  spec?: { volumeName?: string; backupTargetName?: string };
  status?: {
    createdAt?: string;
    dataStored?: string;
    size?: string;
    lastBackupAt?: string;
    lastBackupName?: string;
    lastSyncedAt?: string;
    storageClassName?: string;
    messages?: Record<string, string>;
  };
}

/** One backup of one volume in the target. */
export interface LonghornBackup extends KubeObject {
  spec?: { snapshotName?: string };
  status?: {
    state?: string;
    progress?: number;
    error?: string;
    size?: string;
    volumeSize?: string;
    volumeName?: string;
    newlyUploadDataSize?: string;
    compressionMethod?: string;
    backupCreatedAt?: string;
    snapshotCreatedAt?: string;
    url?: string;
    labels?: Record<string, string>;
  };
}

export interface ConfigMap extends KubeObject {
  data?: Record<string, string>;
}

export interface LonghornSetting extends KubeObject {
  value?: string;
}

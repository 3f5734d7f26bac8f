import type { Condition, KubeObject } from './types';

/** The parts that the page reads and writes of the kinds that the cluster itself is made of. */

export interface Addon extends KubeObject {
  spec: { repo: string; chart: string; version: string; enabled: boolean; valuesContent: string };
  status?: { status?: string; conditions?: Condition[] };
}

export interface SupportBundle extends KubeObject {
  spec: { description: string; issueURL?: string; timeout?: number; expiration?: number; nodeTimeout?: number };
  status?: { state?: string; progress?: number; filename?: string; filesize?: number; conditions?: Condition[] };
}

export interface BlockDevice extends KubeObject {
  spec: {
    nodeName: string;
    devPath: string;
    provision?: boolean;
    tags?: string[];
    fileSystem: { mountPoint: string; forceFormatted?: boolean };
  };
  status?: {
    state?: string;
    provisionPhase?: string;
    conditions?: Condition[];
    deviceStatus?: {
      devPath?: string;
      partitioned?: boolean;
      capacity?: { sizeBytes?: number };
      details?: { deviceType?: string; driveType?: string; model?: string; vendor?: string; serialNumber?: string; storageController?: string; wwn?: string };
      fileSystem?: { type?: string; mountPoint?: string };
    };
  };
}

export interface ResourceQuota extends KubeObject {
  spec?: { hard?: Record<string, string> };
  status?: { hard?: Record<string, string>; used?: Record<string, string> };
}

/** Harvester's: how much room snapshots may take. */
export interface SnapshotQuota extends KubeObject {
  spec?: { snapshotLimit?: { namespaceTotalSnapshotSizeQuota?: number; vmTotalSnapshotSizeQuota?: Record<string, number> } };
  status?: { snapshotLimitStatus?: { namespaceTotalSnapshotSizeUsage?: number; vmTotalSnapshotSizeUsage?: Record<string, number> } };
}

export interface NetworkAttachmentDefinition extends KubeObject {
  spec: { config: string };
}

export interface ClusterNetwork extends KubeObject {
  status?: { conditions?: Condition[] };
}

export interface VlanConfig extends KubeObject {
  spec: {
    clusterNetwork: string;
    description?: string;
    nodeSelector?: Record<string, string>;
    uplink: {
      nics?: string[];
      linkAttributes?: { mtu?: number; txQLen?: number };
      bondOptions?: { mode?: string; miimon?: number };
    };
  };
  status?: { conditions?: Condition[] };
}

export interface VlanStatus extends KubeObject {
  status?: { clusterNetwork?: string; vlanConfig?: string; node?: string; conditions?: Condition[] };
}

export interface Link {
  name: string;
  index?: number;
  type?: string;
  mac?: string;
  state?: string;
}

export interface LinkMonitor extends KubeObject {
  status?: { linkStatus?: Record<string, Link[]> };
}

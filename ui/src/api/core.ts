import type { Condition, KubeObject } from './types';

/** The parts that the page reads of Kubernetes' own kinds. */

export interface Namespace extends KubeObject {
  status?: { phase?: string };
}

export interface Secret extends KubeObject {
  type?: string;
  data?: Record<string, string>;
  stringData?: Record<string, string>;
}

export interface Node extends KubeObject {
  spec?: { unschedulable?: boolean; taints?: { key: string; value?: string; effect: string }[] };
  status?: {
    addresses?: { type: string; address: string }[];
    capacity?: Record<string, string>;
    allocatable?: Record<string, string>;
    conditions?: Condition[];
    nodeInfo?: Record<string, string>;
  };
}

export interface PersistentVolumeClaim extends KubeObject {
  spec?: {
    accessModes?: string[];
    storageClassName?: string;
    volumeMode?: string;
    volumeName?: string;
    resources?: { requests?: { storage?: string } };
    dataSource?: { apiGroup?: string; kind: string; name: string };
  };
  status?: { phase?: string; capacity?: { storage?: string }; conditions?: Condition[] };
}

export interface StorageClass extends KubeObject {
  provisioner?: string;
  parameters?: Record<string, string>;
  reclaimPolicy?: string;
  volumeBindingMode?: string;
  allowVolumeExpansion?: boolean;
}

export interface Event extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  eventTime?: string;
  involvedObject?: { kind?: string; namespace?: string; name?: string; uid?: string; apiVersion?: string };
  source?: { component?: string; host?: string };
  reportingComponent?: string;
}

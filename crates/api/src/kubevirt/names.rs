//! Labels, annotations, finalizers and the values of string fields.

pub const MACHINE_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
pub const INSTANCE_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
pub const MIGRATION_FINALIZER: &str = "kubevirt.io/migrationJobFinalize";

pub const LABEL_CREATED_BY: &str = "kubevirt.io/created-by";
pub const LABEL_NODE_NAME: &str = "kubevirt.io/nodeName";
pub const LABEL_MACHINE_NAME: &str = "vm.kubevirt.io/name";
pub const LABEL_INSTANCE_ID: &str = "vmi.kubevirt.io/id";
pub const LABEL_SCHEDULABLE: &str = "kubevirt.io/schedulable";
pub const LABEL_MIGRATION_INSTANCE: &str = "kubevirt.io/vmi-name";

pub const ANNOTATION_LATEST_API_VERSION: &str = "kubevirt.io/latest-observed-api-version";
pub const ANNOTATION_STORAGE_API_VERSION: &str = "kubevirt.io/storage-observed-api-version";
pub const ANNOTATION_PCI_TOPOLOGY_VERSION: &str = "kubevirt.io/pci-topology-version";
pub const ANNOTATION_MACHINE_GENERATION: &str = "kubevirt.io/vm-generation";
pub const ANNOTATION_INSTANCETYPE: &str = "kubevirt.io/instancetype-name";
pub const ANNOTATION_CLUSTER_INSTANCETYPE: &str = "kubevirt.io/cluster-instancetype-name";
pub const ANNOTATION_PREFERENCE: &str = "kubevirt.io/preference-name";
pub const ANNOTATION_CLUSTER_PREFERENCE: &str = "kubevirt.io/cluster-preference-name";
pub const ANNOTATION_IGNITION: &str = "kubevirt.io/ignitiondata";

/// `spec.runStrategy`.
pub mod run_strategy {
    pub const ALWAYS: &str = "Always";
    pub const HALTED: &str = "Halted";
    pub const MANUAL: &str = "Manual";
    pub const RERUN_ON_FAILURE: &str = "RerunOnFailure";
    pub const ONCE: &str = "Once";
    pub const WAIT_AS_RECEIVER: &str = "WaitAsReceiver";
    pub const ALL: &[&str] = &[ALWAYS, HALTED, MANUAL, RERUN_ON_FAILURE, ONCE, WAIT_AS_RECEIVER];
}

/// `status.printableStatus` of a machine.
pub mod printable_status {
    pub const STOPPED: &str = "Stopped";
    pub const PROVISIONING: &str = "Provisioning";
    pub const STARTING: &str = "Starting";
    pub const RUNNING: &str = "Running";
    pub const PAUSED: &str = "Paused";
    pub const STOPPING: &str = "Stopping";
    pub const TERMINATING: &str = "Terminating";
    pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
    pub const MIGRATING: &str = "Migrating";
    pub const UNKNOWN: &str = "Unknown";
    pub const UNSCHEDULABLE: &str = "ErrorUnschedulable";
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    pub const PVC_NOT_FOUND: &str = "ErrorPvcNotFound";
    pub const DATA_VOLUME_ERROR: &str = "DataVolumeError";
    pub const WAITING_FOR_VOLUME_BINDING: &str = "WaitingForVolumeBinding";
    pub const WAITING_FOR_RECEIVER: &str = "WaitingForReceiver";
}

/// `status.phase` of an instance.
pub mod phase {
    pub const PENDING: &str = "Pending";
    pub const SCHEDULING: &str = "Scheduling";
    pub const SCHEDULED: &str = "Scheduled";
    pub const RUNNING: &str = "Running";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const FAILED: &str = "Failed";
    pub const WAITING_FOR_SYNC: &str = "WaitingForSync";
    pub const UNKNOWN: &str = "Unknown";
}

/// Condition types of machines and instances.
pub mod condition {
    pub const READY: &str = "Ready";
    pub const FAILURE: &str = "Failure";
    pub const PAUSED: &str = "Paused";
    pub const RESTART_REQUIRED: &str = "RestartRequired";
    pub const MANUAL_RECOVERY_REQUIRED: &str = "ManualRecoveryRequired";
    pub const POD_SCHEDULED: &str = "PodScheduled";
    pub const PROVISIONING: &str = "Provisioning";
    pub const SYNCHRONIZED: &str = "Synchronized";
    pub const AGENT_CONNECTED: &str = "AgentConnected";
    pub const AGENT_VERSION_NOT_SUPPORTED: &str = "AgentVersionNotSupported";
    pub const ACCESS_CREDENTIALS_SYNCHRONIZED: &str = "AccessCredentialsSynchronized";
    pub const LIVE_MIGRATABLE: &str = "LiveMigratable";
    pub const STORAGE_LIVE_MIGRATABLE: &str = "StorageLiveMigratable";
    pub const HOT_VCPU_CHANGE: &str = "HotVCPUChange";
    pub const HOT_MEMORY_CHANGE: &str = "HotMemoryChange";
    pub const VOLUMES_CHANGE: &str = "VolumesChange";
    pub const DATA_VOLUMES_READY: &str = "DataVolumesReady";
    pub const MIGRATION_REQUIRED: &str = "MigrationRequired";
    pub const EVICTION_REQUESTED: &str = "EvictionRequested";
}

/// `status.volumeStatus[].phase` of an instance.
pub mod volume_phase {
    pub const PENDING: &str = "Pending";
    pub const BOUND: &str = "Bound";
    pub const ATTACHED_TO_NODE: &str = "AttachedToNode";
    pub const MOUNTED_TO_POD: &str = "MountedToPod";
    pub const READY: &str = "Ready";
    pub const DETACHING: &str = "Detaching";
    pub const UNMOUNTED_FROM_POD: &str = "UnMountedFromPod";
    pub const MEMORY_DUMP_COMPLETED: &str = "MemoryDumpCompleted";
    pub const MEMORY_DUMP_IN_PROGRESS: &str = "MemoryDumpInProgress";
    pub const MEMORY_DUMP_FAILED: &str = "MemoryDumpFailed";
}

/// `evictionStrategy`.
pub mod eviction_strategy {
    pub const NONE: &str = "None";
    pub const LIVE_MIGRATE: &str = "LiveMigrate";
    pub const LIVE_MIGRATE_IF_POSSIBLE: &str = "LiveMigrateIfPossible";
    pub const EXTERNAL: &str = "External";
    pub const ALL: &[&str] = &[NONE, LIVE_MIGRATE, LIVE_MIGRATE_IF_POSSIBLE, EXTERNAL];
}

//! kubevirt.io/v1: virtual machines, their instances and migrations, with KubeVirt's own field names.
//!
//! Values that KubeVirt may add to (phases, reasons, bus names) are strings with constants beside them, so that an
//! object written by a newer client can always be read.

mod config;
mod defaults;
mod devices;
mod disks;
mod domain;
mod features;
mod from_machine;
mod instance;
mod instance_status;
mod kept;
mod machine;
mod migration;
mod names;
mod networks;
mod operator;
mod requests;

pub use config::ClusterConfig;
pub use devices::*;
pub use disks::*;
pub use domain::*;
pub use features::*;
pub use from_machine::vmi_from_vm;
pub use instance::*;
pub use instance_status::*;
pub use kept::*;
pub use machine::*;
pub use migration::*;
pub use names::*;
pub use networks::*;
pub use operator::*;
pub use requests::*;

use crate::kind::kind;

pub const GROUP: &str = "kubevirt.io";

kind! {
    /// A virtual machine: it lives on whether or not it runs.
    VirtualMachine, "kubevirt.io", "v1", "virtualmachines", NamespaceResourceScope {
        spec: VirtualMachineSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineStatus>,
    }
}

kind! {
    /// One run of a virtual machine.
    VirtualMachineInstance, "kubevirt.io", "v1", "virtualmachineinstances", NamespaceResourceScope {
        spec: VirtualMachineInstanceSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineInstanceStatus>,
    }
}

kind! {
    /// One move of an instance to another node.
    VirtualMachineInstanceMigration, "kubevirt.io", "v1", "virtualmachineinstancemigrations", NamespaceResourceScope {
        spec: VirtualMachineInstanceMigrationSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineInstanceMigrationStatus>,
    }
}

kind! {
    /// The cluster's settings for virtual machines; Croft reads the parts that [`KubeVirtConfiguration`] names.
    KubeVirt, "kubevirt.io", "v1", "kubevirts", NamespaceResourceScope {
        spec: KubeVirtSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<KubeVirtStatus>,
    }
}

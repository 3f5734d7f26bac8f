//! instancetype.kubevirt.io/v1beta1: sizes and preferences that machines refer to.

mod types;

pub use types::*;

use crate::kind::kind;

pub const GROUP: &str = "instancetype.kubevirt.io";

kind! {
    /// A size of machines, for one namespace.
    VirtualMachineInstancetype, "instancetype.kubevirt.io", "v1beta1", "virtualmachineinstancetypes", NamespaceResourceScope {
        spec: VirtualMachineInstancetypeSpec,
    }
}

kind! {
    /// A size of machines, for all namespaces.
    VirtualMachineClusterInstancetype, "instancetype.kubevirt.io", "v1beta1", "virtualmachineclusterinstancetypes", ClusterResourceScope {
        spec: VirtualMachineInstancetypeSpec,
    }
}

kind! {
    /// What a guest system would like where its machine leaves the choice, for one namespace.
    VirtualMachinePreference, "instancetype.kubevirt.io", "v1beta1", "virtualmachinepreferences", NamespaceResourceScope {
        spec: VirtualMachinePreferenceSpec,
    }
}

kind! {
    /// What a guest system would like where its machine leaves the choice, for all namespaces.
    VirtualMachineClusterPreference, "instancetype.kubevirt.io", "v1beta1", "virtualmachineclusterpreferences", ClusterResourceScope {
        spec: VirtualMachinePreferenceSpec,
    }
}

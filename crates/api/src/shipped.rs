//! The CustomResourceDefinitions that Croft brings along: KubeVirt's, CDI's, Harvester's and the one for networks.
//!
//! They are ordinary custom resources with real definitions, so that every client finds what it expects in
//! discovery, in `kubectl explain` and among the definitions themselves. The schemas of kinds that Croft acts on are
//! made from the structs of the kinds; those of all others are read from tables ([`notation`]).

mod facts;
mod notation;
pub(crate) mod schema;
mod shapes;
mod tables;
mod told;

use serde_json::Value;

use self::facts::{Column, Facts, VersionFacts};
pub use self::told::idle_status;
use crate::resource::Scope;
use crate::{cdi, cni, harvester, instancetype, kubevirt};

/// A kind to ship.
struct Shipped {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    /// In the category `all`: shown by `kubectl get all`.
    in_all: bool,
    scope: Scope,
    /// Best first; the first is stored.
    versions: &'static [Served],
    has_status: bool,
    columns: &'static [ShippedColumn],
    schema: fn() -> Value,
}

struct Served {
    name: &'static str,
    deprecation: Option<&'static str>,
}

/// Name, type, path, priority, description.
struct ShippedColumn(&'static str, &'static str, &'static str, i32, &'static str);

const AGE: ShippedColumn = ShippedColumn("Age", "date", ".metadata.creationTimestamp", 0, "");
const READY: ShippedColumn = ShippedColumn("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", 0, "");
const PHASE: ShippedColumn = ShippedColumn("Phase", "string", ".status.phase", 0, "");

const V1: &[Served] = &[Served { name: "v1", deprecation: None }];
const V1BETA1: &[Served] = &[Served { name: "v1beta1", deprecation: None }];
const KUBEVIRT: &[Served] = &[
    Served { name: "v1", deprecation: None },
    Served {
        name: "v1alpha3",
        deprecation: Some("kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release."),
    },
];

const SHIPPED: &[Shipped] = &[
    Shipped {
        group: kubevirt::GROUP,
        kind: "VirtualMachine",
        plural: "virtualmachines",
        short_names: &["vm", "vms"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: KUBEVIRT,
        has_status: true,
        columns: &[
            AGE,
            ShippedColumn("Status", "string", ".status.printableStatus", 0, "Human Readable Status"),
            READY,
        ],
        schema: schema::of::<kubevirt::VirtualMachine>,
    },
    Shipped {
        group: kubevirt::GROUP,
        kind: "VirtualMachineInstance",
        plural: "virtualmachineinstances",
        short_names: &["vmi", "vmis"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: KUBEVIRT,
        has_status: false,
        columns: &[
            AGE,
            PHASE,
            ShippedColumn("IP", "string", ".status.interfaces[0].ipAddress", 0, ""),
            ShippedColumn("NodeName", "string", ".status.nodeName", 0, ""),
            READY,
            ShippedColumn("Live-Migratable", "string", ".status.conditions[?(@.type=='LiveMigratable')].status", 1, ""),
            ShippedColumn("Paused", "string", ".status.conditions[?(@.type=='Paused')].status", 1, ""),
        ],
        schema: schema::of::<kubevirt::VirtualMachineInstance>,
    },
    Shipped {
        group: kubevirt::GROUP,
        kind: "VirtualMachineInstanceMigration",
        plural: "virtualmachineinstancemigrations",
        short_names: &["vmim", "vmims"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: KUBEVIRT,
        has_status: true,
        columns: &[
            ShippedColumn("Phase", "string", ".status.phase", 0, "The current phase of VM instance migration"),
            ShippedColumn("VMI", "string", ".spec.vmiName", 0, "The name of the VMI to perform the migration on"),
        ],
        schema: schema::of::<kubevirt::VirtualMachineInstanceMigration>,
    },
    Shipped {
        group: kubevirt::GROUP,
        kind: "KubeVirt",
        plural: "kubevirts",
        short_names: &["kv", "kvs"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: KUBEVIRT,
        has_status: true,
        columns: &[AGE, PHASE],
        schema: schema::of::<kubevirt::KubeVirt>,
    },
    Shipped {
        group: instancetype::GROUP,
        kind: "VirtualMachineInstancetype",
        plural: "virtualmachineinstancetypes",
        short_names: &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: false,
        columns: &[],
        schema: schema::of::<instancetype::VirtualMachineInstancetype>,
    },
    Shipped {
        group: instancetype::GROUP,
        kind: "VirtualMachineClusterInstancetype",
        plural: "virtualmachineclusterinstancetypes",
        short_names: &["vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"],
        in_all: false,
        scope: Scope::Cluster,
        versions: V1BETA1,
        has_status: false,
        columns: &[],
        schema: schema::of::<instancetype::VirtualMachineClusterInstancetype>,
    },
    Shipped {
        group: instancetype::GROUP,
        kind: "VirtualMachinePreference",
        plural: "virtualmachinepreferences",
        short_names: &["vmpref", "vmprefs", "vmp", "vmps"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: false,
        columns: &[],
        schema: schema::of::<instancetype::VirtualMachinePreference>,
    },
    Shipped {
        group: instancetype::GROUP,
        kind: "VirtualMachineClusterPreference",
        plural: "virtualmachineclusterpreferences",
        short_names: &["vmcp", "vmcps"],
        in_all: false,
        scope: Scope::Cluster,
        versions: V1BETA1,
        has_status: false,
        columns: &[],
        schema: schema::of::<instancetype::VirtualMachineClusterPreference>,
    },
    Shipped {
        group: cdi::GROUP,
        kind: "DataVolume",
        plural: "datavolumes",
        short_names: &["dv", "dvs"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: true,
        columns: &[
            ShippedColumn("Phase", "string", ".status.phase", 0, "The phase the data volume is in"),
            ShippedColumn(
                "Progress",
                "string",
                ".status.progress",
                0,
                "Transfer progress in percentage if known, N/A otherwise",
            ),
            ShippedColumn(
                "Restarts",
                "integer",
                ".status.restartCount",
                0,
                "The number of times the transfer has been restarted.",
            ),
            AGE,
        ],
        schema: schema::of::<cdi::DataVolume>,
    },
    Shipped {
        group: cdi::GROUP,
        kind: "DataSource",
        plural: "datasources",
        short_names: &["das"],
        in_all: true,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: true,
        columns: &[],
        schema: schema::of::<cdi::DataSource>,
    },
    Shipped {
        group: cdi::GROUP,
        kind: "StorageProfile",
        plural: "storageprofiles",
        short_names: &[],
        in_all: false,
        scope: Scope::Cluster,
        versions: V1BETA1,
        has_status: true,
        columns: &[],
        schema: schema::of::<cdi::StorageProfile>,
    },
    Shipped {
        group: cdi::GROUP,
        kind: "CDIConfig",
        plural: "cdiconfigs",
        short_names: &[],
        in_all: false,
        scope: Scope::Cluster,
        versions: V1BETA1,
        has_status: false,
        columns: &[],
        schema: schema::of::<cdi::CDIConfig>,
    },
    Shipped {
        group: cdi::GROUP,
        kind: "CDI",
        plural: "cdis",
        short_names: &["cdi", "cdis"],
        in_all: false,
        scope: Scope::Cluster,
        versions: V1BETA1,
        has_status: false,
        columns: &[AGE, PHASE],
        schema: schema::of::<cdi::CDI>,
    },
    Shipped {
        group: harvester::GROUP,
        kind: "VirtualMachineImage",
        plural: "virtualmachineimages",
        short_names: &["vmimage", "vmimages"],
        in_all: false,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: false,
        columns: &[
            ShippedColumn("BACKEND", "string", ".spec.backend", 0, ""),
            ShippedColumn("DISPLAY-NAME", "string", ".spec.displayName", 0, ""),
            ShippedColumn("SIZE", "integer", ".status.size", 0, ""),
            ShippedColumn("VIRTUALSIZE", "integer", ".status.virtualSize", 0, ""),
            ShippedColumn("AGE", "date", ".metadata.creationTimestamp", 0, ""),
        ],
        schema: schema::of::<harvester::VirtualMachineImage>,
    },
    Shipped {
        group: harvester::GROUP,
        kind: "Addon",
        plural: "addons",
        short_names: &[],
        in_all: false,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: true,
        columns: &[
            ShippedColumn("HelmRepo", "string", ".spec.repo", 0, ""),
            ShippedColumn("ChartName", "string", ".spec.chart", 0, ""),
            ShippedColumn("Enabled", "boolean", ".spec.enabled", 0, ""),
        ],
        schema: schema::of::<harvester::Addon>,
    },
    Shipped {
        group: harvester::GROUP,
        kind: "Setting",
        plural: "settings",
        short_names: &[],
        in_all: false,
        scope: Scope::Cluster,
        versions: V1BETA1,
        has_status: false,
        columns: &[ShippedColumn("VALUE", "string", ".value", 0, "")],
        schema: schema::of::<harvester::Setting>,
    },
    Shipped {
        group: harvester::GROUP,
        kind: "KeyPair",
        plural: "keypairs",
        short_names: &["kp", "kps"],
        in_all: false,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: false,
        columns: &[
            ShippedColumn("FINGER_PRINT", "string", ".status.fingerPrint", 0, ""),
            ShippedColumn("AGE", "date", ".metadata.creationTimestamp", 0, ""),
        ],
        schema: schema::of::<harvester::KeyPair>,
    },
    Shipped {
        group: harvester::GROUP,
        kind: "VirtualMachineTemplate",
        plural: "virtualmachinetemplates",
        short_names: &["vmtemplate", "vmtemplates"],
        in_all: false,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: true,
        columns: &[
            ShippedColumn("VERSION_ID", "string", ".spec.defaultVersionId", 0, ""),
            ShippedColumn("DESCRIPTION", "string", ".spec.description", 10, ""),
            ShippedColumn("VERSION_DEFAULT", "integer", ".status.defaultVersion", 8, ""),
            ShippedColumn("VERSION_LATEST", "integer", ".status.latestVersion", 8, ""),
            ShippedColumn("AGE", "date", ".metadata.creationTimestamp", 0, ""),
        ],
        schema: schema::of::<harvester::VirtualMachineTemplate>,
    },
    Shipped {
        group: harvester::GROUP,
        kind: "VirtualMachineTemplateVersion",
        plural: "virtualmachinetemplateversions",
        short_names: &["vmtemplateversion", "vmtemplateversions"],
        in_all: false,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: false,
        columns: &[
            // Harvester's column names a field that is not there, and so do clients that print it.
            ShippedColumn("TEMPLATE_ID", "string", ".spec.templatedId", 0, ""),
            ShippedColumn("DESCRIPTION", "string", ".spec.description", 10, ""),
            ShippedColumn("VERSION", "integer", ".status.version", 0, ""),
            ShippedColumn("AGE", "date", ".metadata.creationTimestamp", 0, ""),
        ],
        schema: schema::of::<harvester::VirtualMachineTemplateVersion>,
    },
    Shipped {
        group: harvester::GROUP,
        kind: "BlockDevice",
        plural: "blockdevices",
        short_names: &["bd", "bds"],
        in_all: false,
        scope: Scope::Namespaced,
        versions: V1BETA1,
        has_status: false,
        columns: &[
            ShippedColumn("Type", "string", ".status.deviceStatus.details.deviceType", 0, ""),
            ShippedColumn("DevPath", "string", ".status.deviceStatus.devPath", 0, ""),
            ShippedColumn("MountPoint", "string", ".status.deviceStatus.fileSystem.mountPoint", 0, ""),
            ShippedColumn("NodeName", "string", ".spec.nodeName", 0, ""),
            ShippedColumn("ProvisionPhase", "string", ".status.provisionPhase", 0, ""),
            AGE,
        ],
        schema: schema::of::<harvester::BlockDevice>,
    },
    Shipped {
        group: cni::GROUP,
        kind: "NetworkAttachmentDefinition",
        plural: "network-attachment-definitions",
        short_names: &["net-attach-def"],
        in_all: false,
        scope: Scope::Namespaced,
        versions: V1,
        has_status: false,
        columns: &[],
        schema: schema::of::<cni::NetworkAttachmentDefinition>,
    },
];

/// Whether the kind has a status subresource, if it is one of ours.
pub(crate) fn has_status(group: &str, plural: &str) -> Option<bool> {
    let typed = SHIPPED.iter().find(|shipped| shipped.group == group && shipped.plural == plural);
    typed.map(|shipped| shipped.has_status).or_else(|| Some(tables::find(group, plural)?.has_status))
}

/// What does not happen to objects of a kind that is only stored; `None` for all other kinds.
pub(crate) fn idle(group: &str, plural: &str) -> Option<&'static str> {
    tables::find(group, plural)?.idle
}

/// The name in paths of a kind that is described by a table.
pub(crate) fn plural(group: &str, kind: &str) -> Option<&'static str> {
    let header = tables::headers().iter().find(|header| header.group == group && header.kind == kind);
    header.map(|header| header.plural)
}

/// Stands for everything that the definitions are made from: two programs with the same one have the same definitions.
pub const DEFINITIONS_DIGEST: &str = env!("CROFT_DEFINITIONS_DIGEST");

/// The names of all definitions; cheap beside the definitions themselves.
pub fn shipped_names() -> impl Iterator<Item = String> {
    let typed = SHIPPED.iter().map(|shipped| (shipped.plural, shipped.group));
    let tables = tables::headers().iter().map(|header| (header.plural, header.group));
    typed.chain(tables).map(|(plural, group)| format!("{plural}.{group}"))
}

/// The definitions, as they are to be stored; each is made when it is asked for, because they are large.
pub fn shipped_definitions() -> impl Iterator<Item = Value> {
    let typed = SHIPPED.iter().map(facts);
    typed.chain(tables::read()).map(|facts| facts::definition(&facts))
}

fn facts(shipped: &Shipped) -> Facts {
    let schema = (shipped.schema)();
    let column = |&ShippedColumn(name, ty, path, priority, description): &ShippedColumn| Column {
        name,
        ty,
        path,
        priority,
        description,
    };
    let version = |served: &Served| VersionFacts {
        name: served.name,
        is_deprecated: served.deprecation.is_some(),
        deprecation: served.deprecation,
        columns: shipped.columns.iter().map(column).collect(),
        schema: schema.clone(),
    };
    Facts {
        group: shipped.group,
        kind: shipped.kind,
        plural: shipped.plural,
        short_names: shipped.short_names.to_vec(),
        in_all: shipped.in_all,
        scope: shipped.scope,
        has_status: shipped.has_status,
        has_scale: false,
        versions: shipped.versions.iter().map(version).collect(),
    }
}

#[cfg(test)]
mod tests;

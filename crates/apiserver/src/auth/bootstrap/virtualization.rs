//! The roles that KubeVirt, CDI and Harvester bring along, under their names. Those for `admin`, `edit` and `view` become
//! part of the roles of these names, so that whoever has a namespace has its machines too.

use serde_json::{Value, json};

use super::AUTHENTICATED;
use super::policy::{READ, READ_WRITE, aggregate_to, binding, on, role};

const KUBEVIRT: &str = "kubevirt.io";
const SUBRESOURCES: &str = "subresources.kubevirt.io";
const INSTANCETYPE: &str = "instancetype.kubevirt.io";
const CDI: &str = "cdi.kubevirt.io";
const UPLOAD: &str = "upload.cdi.kubevirt.io";
const HARVESTER: &str = "harvesterhci.io";
const NETWORKS: &str = "k8s.cni.cncf.io";
const STORAGE: &str = "storage.k8s.io";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

const MACHINES: &[&str] = &["virtualmachines", "virtualmachineinstances"];
const MIGRATIONS: &[&str] = &["virtualmachineinstancemigrations"];
const SIZES: &[&str] = &[
    "virtualmachineinstancetypes",
    "virtualmachineclusterinstancetypes",
    "virtualmachinepreferences",
    "virtualmachineclusterpreferences",
];
const DATA: &[&str] = &["datavolumes", "datasources"];
const IMAGES: &[&str] = &[
    "virtualmachineimages",
    "keypairs",
    "virtualmachinetemplates",
    "virtualmachinetemplateversions",
    "virtualmachinebackups",
    "virtualmachinerestores",
];

/// To look at: what a guest tells of itself, and how a machine is made.
const LOOK: &[&str] = &[
    "virtualmachines/expand-spec",
    "virtualmachines/objectgraph",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/log",
    "virtualmachineinstances/objectgraph",
];
/// To get into a machine.
const ENTER: &[&str] = &[
    "virtualmachines/portforward",
    "virtualmachineinstances/console",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/vnc/screenshot",
    "virtualmachineinstances/portforward",
    "virtualmachineinstances/usbredir",
    "virtualmachineinstances/vsock",
];
/// To do something with it.
const ACT: &[&str] = &[
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachines/restart",
    "virtualmachines/addvolume",
    "virtualmachines/removevolume",
    "virtualmachines/memorydump",
    "virtualmachines/removememorydump",
    "virtualmachines/evacuate/cancel",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unpause",
    "virtualmachineinstances/addvolume",
    "virtualmachineinstances/removevolume",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/softreboot",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/evacuate/cancel",
];

pub(super) fn cluster_roles() -> Vec<Value> {
    vec![
        role(
            "kubevirt.io:default",
            vec![
                on(&["get", "list"], KUBEVIRT, &["kubevirts"]),
                on(&["get", "list"], SUBRESOURCES, &["version", "guestfs"]),
            ],
        ),
        part("kubevirt.io:admin", "admin", using(READ_WRITE)),
        part("kubevirt.io:edit", "edit", using(READ_WRITE)),
        part("kubevirt.io:view", "view", looking()),
        role(
            "kubevirt.io:migrate",
            vec![on(&["update"], SUBRESOURCES, &["virtualmachines/migrate"]), on(READ_WRITE, KUBEVIRT, MIGRATIONS)],
        ),
        role(
            "instancetype.kubevirt.io:view",
            vec![on(READ, INSTANCETYPE, &["virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences"])],
        ),
        part("cdi.kubevirt.io:admin", "admin", filling()),
        part("cdi.kubevirt.io:edit", "edit", filling()),
        part("cdi.kubevirt.io:view", "view", vec![on(READ, CDI, DATA)]),
        role("cdi.kubevirt.io:config-reader", vec![on(READ, CDI, &["cdiconfigs", "storageprofiles"])]),
        part(
            "harvesterhci.io:edit",
            "edit",
            vec![
                on(&["*"], HARVESTER, IMAGES),
                on(&["*"], NETWORKS, &["network-attachment-definitions"]),
                on(&["*"], SNAPSHOTS, &["volumesnapshots", "volumesnapshotcontents"]),
            ],
        ),
        part(
            "harvesterhci.io:view",
            "view",
            vec![
                on(READ, HARVESTER, IMAGES),
                on(READ, NETWORKS, &["network-attachment-definitions"]),
                on(READ, SNAPSHOTS, &["volumesnapshots", "volumesnapshotcontents"]),
            ],
        ),
        role("harvesterhci.io:cloudprovider", cloud_provider()),
        role("harvesterhci.io:csi-driver", csi_driver()),
        role("harvester-authenticated", everybody()),
    ]
}

pub(super) fn bindings() -> Vec<Value> {
    let mut bindings: Vec<Value> = [
        "kubevirt.io:default",
        "instancetype.kubevirt.io:view",
        "cdi.kubevirt.io:config-reader",
        "harvester-authenticated",
    ]
    .map(|role| binding(role, &[AUTHENTICATED]))
    .into();
    // What is meant for all: templates, images.
    let mut public = binding("view", &[AUTHENTICATED]);
    public["kind"] = json!("RoleBinding");
    public["metadata"] = json!({"namespace": "harvester-public", "name": "harvester-public-view"});
    bindings.push(public);
    bindings
}

fn part(name: &str, whole: &str, rules: Vec<Value>) -> Value {
    let mut role = role(name, rules);
    role["metadata"]["labels"] = json!({ aggregate_to(whole): "true" });
    role
}

fn using(verbs: &[&str]) -> Vec<Value> {
    vec![
        on(&["get"], SUBRESOURCES, &[LOOK, ENTER].concat()),
        on(&["update"], SUBRESOURCES, ACT),
        on(&["update"], SUBRESOURCES, &["expand-vm-spec"]),
        on(verbs, KUBEVIRT, MACHINES),
        on(READ, KUBEVIRT, MIGRATIONS),
        on(verbs, INSTANCETYPE, SIZES),
    ]
}

fn looking() -> Vec<Value> {
    vec![
        on(&["get"], SUBRESOURCES, LOOK),
        on(&["update"], SUBRESOURCES, &["expand-vm-spec"]),
        on(READ, KUBEVIRT, &[MACHINES, MIGRATIONS].concat()),
        on(READ, INSTANCETYPE, SIZES),
    ]
}

fn filling() -> Vec<Value> {
    vec![on(READ_WRITE, CDI, DATA), on(&["create"], UPLOAD, &["uploadtokenrequests"])]
}

/// What the cloud provider of a guest cluster does in the namespace of its machines.
fn cloud_provider() -> Vec<Value> {
    vec![
        on(&["get", "list", "watch", "update", "create", "delete"], "loadbalancer.harvesterhci.io", &["loadbalancers"]),
        on(
            &["get", "update"],
            SUBRESOURCES,
            &[
                "virtualmachines/addvolume",
                "virtualmachines/removevolume",
                "virtualmachineinstances/addvolume",
                "virtualmachineinstances/removevolume",
                "virtualmachineinstances/guestosinfo",
            ],
        ),
        on(READ, KUBEVIRT, MACHINES),
        on(READ, "", &["pods"]),
        on(&["*"], "", &["persistentvolumeclaims", "persistentvolumeclaims/status"]),
    ]
}

/// What the storage driver of a guest cluster needs of the whole cluster.
fn csi_driver() -> Vec<Value> {
    let network_file_systems = ["networkfilesystems", "networkfilesystems/status"];
    let snapshots = [
        "volumesnapshots",
        "volumesnapshots/status",
        "volumesnapshotcontents",
        "volumesnapshotcontents/status",
        "volumesnapshotclasses",
        "volumesnapshotclasses/status",
    ];
    vec![
        on(READ, STORAGE, &["storageclasses", "volumeattachments"]),
        on(&["*"], HARVESTER, &network_file_systems),
        on(&["*"], HARVESTER, &["volumeremotebackups", "volumeremoterestores"]),
        of_these(
            on(&["get", "list"], HARVESTER, &["settings"]),
            &["csi-online-expand-validation", "csi-driver-config"],
        ),
        on(&["get", "list"], "longhorn.io", &["volumes", "volumes/status"]),
        on(&["*"], SNAPSHOTS, &snapshots),
        on(&["patch"], KUBEVIRT, &["virtualmachines"]),
    ]
}

fn everybody() -> Vec<Value> {
    let settings = [
        "server-version",
        "default-storage-class",
        "harvester-csi-ccm-versions",
        "default-vm-termination-grace-period-seconds",
    ];
    vec![
        of_these(on(&["get", "watch"], HARVESTER, &["settings"]), &settings),
        on(READ, "network.harvesterhci.io", &["clusternetworks"]),
        of_these(on(&["get", "watch"], "", &["namespaces"]), &["harvester-public"]),
    ]
}

fn of_these(mut rule: Value, names: &[&str]) -> Value {
    rule["resourceNames"] = json!(names);
    rule
}

#[cfg(test)]
mod tests {
    use super::super::default_objects;
    use crate::auth::testing::TestCache;
    use crate::auth::{AUTHENTICATED, Attributes, RBAC_GROUP, Rbac};
    use crate::user::UserInfo;
    use serde_json::{Value, json};

    fn granted(role: &str, user: &str) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": "ns", "name": user},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": user}],
        })
    }

    #[tokio::test]
    async fn whoever_has_a_namespace_has_its_machines() {
        let mut objects = default_objects();
        objects.extend([granted("edit", "editor"), granted("view", "viewer")]);
        let cache = TestCache::new(objects).await;
        let rbac = Rbac::new(&cache);
        let may = |user: &str, verb, subresource, namespace| {
            let user = UserInfo::new(user, &[AUTHENTICATED]);
            let (resource, subresource) = subresource;
            let wanted = Attributes {
                is_resource: true,
                verb,
                group: "subresources.kubevirt.io",
                resource,
                subresource,
                name: "a",
                namespace,
                path: "",
            };
            rbac.authorize(&user, &wanted).allowed
        };
        let start = ("virtualmachines", "start");
        let console = ("virtualmachineinstances", "console");
        let guest = ("virtualmachineinstances", "guestosinfo");
        let screenshot = ("virtualmachineinstances", "vnc/screenshot");
        // user, verb, what, allowed
        let table = [
            ("editor", "update", start, true),
            ("editor", "get", console, true),
            ("editor", "get", screenshot, true),
            ("editor", "update", ("virtualmachines", "migrate"), false),
            ("viewer", "get", guest, true),
            ("viewer", "get", ("virtualmachineinstances", "log"), true),
            ("nobody", "get", ("virtualmachineinstances", "log"), false),
            ("viewer", "get", console, false),
            ("viewer", "update", start, false),
            ("nobody", "get", guest, false),
        ];
        for (user, verb, what, expected) in table {
            assert_eq!(may(user, verb, what, "ns"), expected, "{user} {verb} {what:?}");
            assert!(!may(user, verb, what, "other"), "{user} {verb} {what:?} elsewhere");
        }
    }

    #[tokio::test]
    async fn everybody_may_read_what_clients_ask_first() {
        let cache = TestCache::new(default_objects()).await;
        let rbac = Rbac::new(&cache);
        let bob = UserInfo::new("bob", &[AUTHENTICATED]);
        let setting = |name| Attributes {
            is_resource: true,
            verb: "get",
            group: "harvesterhci.io",
            resource: "settings",
            name,
            ..Attributes::default()
        };
        assert!(rbac.authorize(&bob, &setting("server-version")).allowed);
        assert!(!rbac.authorize(&bob, &setting("backup-target")).allowed);
        let version =
            Attributes { verb: "list", group: "subresources.kubevirt.io", resource: "version", ..setting("") };
        assert!(rbac.authorize(&bob, &version).allowed);
        assert!(!rbac.authorize(&UserInfo::anonymous(), &version).allowed);
    }
}

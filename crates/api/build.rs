//! Makes the OpenAPI definitions of the built-in types: descriptions from `k8s-openapi`, the `x-kubernetes-…`
//! extensions from our own table of facts. Stored compressed, since only `kubectl explain` and the like read them.
//!
//! And a digest of all sources that the shipped definitions are made from, so that a server that starts can tell that
//! the ones it has stored are this program's without making them again.

// The build script and the library read the same table.
#[path = "src/wire.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic)]
mod wire;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::Path;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use wire::{Body, Field, META, Presence, Shape, TABLE, Ty, TypeDef};

const PREFIX: &str = "#/components/schemas/";

macro_rules! add {
    ($generator:ident: $($module:path { $($kind:ident)* })*) => {
        $( { use $module as module; $( $generator.subschema_for::<module::$kind>(); )* } )*
    };
}

fn main() {
    println!("cargo::rerun-if-changed=wire");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=CROFT_DEFINITIONS_DIGEST={:016x}", sources_digest());
    let mut definitions = definitions();
    for (name, definition) in &mut definitions {
        complete(name, definition);
    }
    add_lists(&mut definitions);
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let file = std::fs::File::create(std::path::Path::new(&out).join("openapi.json.gz")).expect("write to OUT_DIR");
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    let text = serde_json::to_vec(&definitions).expect("JSON values always serialize");
    gzip.write_all(&text).and_then(|()| gzip.finish()).expect("write to OUT_DIR");
}

/// Of this crate and those that it builds upon. The lock file stands for all others.
fn sources_digest() -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in ["src", "definitions", "../meta/src", "../schema/src", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
        hash_all(Path::new(path), &mut hasher);
    }
    hasher.finish()
}

fn hash_all(path: &Path, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    if path.is_file() {
        std::fs::read(path).expect("read a source file").hash(hasher);
        return;
    }
    let entries = std::fs::read_dir(path).expect("list the source files");
    let mut below: Vec<_> = entries.map(|entry| entry.expect("list the source files").path()).collect();
    // The order of a directory is the file system's.
    below.sort();
    for path in &below {
        hash_all(path, hasher);
    }
}

/// What `k8s-openapi` knows.
fn definitions() -> BTreeMap<String, Value> {
    let mut generator = SchemaGenerator::new(SchemaSettings::openapi3());
    add! { generator:
        api::core::v1 {
            Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
            PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret ServiceAccount Service
        }
        api::apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
        api::events::v1 { Event }
        api::authentication::v1 { SelfSubjectReview TokenReview TokenRequest }
        api::authorization::v1 {
            LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
        }
        api::autoscaling::v1 { HorizontalPodAutoscaler Scale }
        api::autoscaling::v2 { HorizontalPodAutoscaler }
        api::batch::v1 { CronJob Job }
        api::certificates::v1 { CertificateSigningRequest }
        api::networking::v1 { Ingress IngressClass IPAddress NetworkPolicy ServiceCIDR }
        api::policy::v1 { Eviction PodDisruptionBudget }
        api::rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
        api::storage::v1 {
            CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
        }
        api::admissionregistration::v1 {
            MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
            ValidatingWebhookConfiguration
        }
        api::admissionregistration::v1beta1 { MutatingAdmissionPolicy MutatingAdmissionPolicyBinding }
        api::scheduling::v1 { PriorityClass }
        api::coordination::v1 { Lease }
        api::node::v1 { RuntimeClass }
        api::discovery::v1 { EndpointSlice }
        api::resource::v1 { DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice }
        api::flowcontrol::v1 { FlowSchema PriorityLevelConfiguration }
        apiextensions::v1 { CustomResourceDefinition }
        apiregistration::v1 { APIService }
        meta::v1 { APIGroup APIGroupList APIResourceList APIVersions DeleteOptions ListMeta Patch Status }
    }
    generator.take_definitions(true).into_iter().collect()
}

fn complete(name: &str, definition: &mut Value) {
    wrap_references(definition);
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
            definition.as_object_mut().map(|d| d.remove("type"));
            definition["oneOf"] = json!([{"type": "string"}, {"type": "number"}]);
        }
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            definition.as_object_mut().map(|d| d.remove("x-kubernetes-int-or-string"));
            definition["format"] = json!("int-or-string");
            definition["oneOf"] = json!([{"type": "integer"}, {"type": "string"}]);
        }
        _ => {}
    }
    let Some(index) = TABLE.lookup(name) else { return };
    let def = TABLE.get(index);
    if def.atomic {
        definition["x-kubernetes-map-type"] = json!("atomic");
    }
    if def.is_kind {
        definition["x-kubernetes-group-version-kind"] = json!(kinds_of(def));
    }
    if let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) {
        extend(def, properties);
    }
}

/// Beside a reference OpenAPI 3.0 ignores everything, so a description needs `allOf`.
fn wrap_references(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(wrap_references);
            if map.len() > 1 && map.get("$ref").is_some_and(Value::is_string) {
                let reference = map.remove("$ref");
                map.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}

fn kinds_of(def: &TypeDef) -> Vec<Value> {
    let (package, kind) = def.name.rsplit_once('.').expect("names are qualified");
    let (package, version) = package.rsplit_once('.').expect("names are qualified");
    let groups: Vec<&str> = if def.name.starts_with(META) { vec!["", "apps", "batch"] } else { vec![group(package)] };
    groups.iter().map(|group| json!({"group": group, "version": version, "kind": kind})).collect()
}

fn group(package: &str) -> &str {
    const GROUPS: &[&str] = &[
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    ];
    let short = package.rsplit('.').next().unwrap_or(package);
    if short == "core" {
        return "";
    }
    GROUPS.iter().find(|group| group.split('.').next() == Some(short)).copied().unwrap_or(short)
}

fn extend(def: &TypeDef, properties: &mut Map<String, Value>) {
    for field in &def.fields {
        if let (true, Ty::Message(index)) = (field.inline, field.ty) {
            extend(TABLE.get(index), properties);
        } else if let Some(Value::Object(property)) = properties.get_mut(field.json) {
            mark(field, property);
        }
    }
}

fn mark(field: &Field, property: &mut Map<String, Value>) {
    if field.shape == Shape::List {
        let list_type = if let Some(keys) = field.map_keys() {
            property.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
            Some("map")
        } else if field.is_set() {
            Some("set")
        } else {
            field.is_atomic_list().then_some("atomic")
        };
        if let Some(list_type) = list_type {
            property.insert("x-kubernetes-list-type".to_owned(), json!(list_type));
        }
    }
    if field.is_atomic_map() {
        property.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    if let Some((strategy, key)) = field.patch() {
        property.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategy));
        if let Some(key) = key {
            property.insert("x-kubernetes-patch-merge-key".to_owned(), json!(key));
        }
    }
    if let Some(values) = field.enum_values() {
        property.insert("enum".to_owned(), json!(values.collect::<Vec<_>>()));
    }
    let is_struct = matches!(field.ty, Ty::Message(index) if TABLE.get(index).body == Body::Struct);
    if let Some(default) = field.default() {
        let default = serde_json::from_str::<Value>(default).expect("defaults in the table are JSON");
        property.insert("default".to_owned(), default);
    } else if is_struct && field.shape == Shape::One && field.presence != Presence::Pointer {
        property.insert("default".to_owned(), json!({}));
    }
}

/// Lists look all the same, and `k8s-openapi` has one generic type for them.
fn add_lists(definitions: &mut BTreeMap<String, Value>) {
    for def in TABLE.types.iter().filter(|def| def.is_kind) {
        let Some(item) = def.name.strip_suffix("List").filter(|item| definitions.contains_key(*item)) else { continue };
        let text = |description: &str| json!({"type": "string", "description": description});
        let list = json!({
            "description": format!("A list of {} objects.", item.rsplit('.').next().unwrap_or(item)),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": text("The version of the schema of this list."),
                "kind": text("What this is."),
                "metadata": {
                    "allOf": [{"$ref": format!("{PREFIX}{META}.ListMeta")}],
                    "default": {},
                    "description": "Where the list stands, and how to continue it.",
                },
                "items": {
                    "description": "The objects.",
                    "type": "array",
                    "items": {"allOf": [{"$ref": format!("{PREFIX}{item}")}], "default": {}},
                },
            },
            "x-kubernetes-group-version-kind": kinds_of(def),
        });
        definitions.insert(def.name.clone(), list);
    }
}

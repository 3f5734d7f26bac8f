//! Schemas: Steve's names for kinds (`kubevirt.io.virtualmachine`, `secret`), and what the caller may do with each.

use std::collections::BTreeSet;

use croft_meta::ApiError;
use serde_json::{Value, json};

use super::reply;
use crate::auth::Attributes;
use crate::call::{Call, Target};
use crate::catalog::{Catalog, Served};
use crate::table::Printer;

const BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";

/// A kind in its best version.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    pub(super) served: Served,
    /// `kubevirt.io.virtualmachine`
    pub(super) id: String,
    /// `kubevirt.io.virtualmachines`, as in paths.
    pub(super) plural_id: String,
}

impl Schema {
    fn new(served: Served) -> Self {
        let prefix = if served.group().is_empty() { String::new() } else { format!("{}.", served.group()) };
        let id = format!("{prefix}{}", served.kind().to_ascii_lowercase());
        let plural_id = format!("{prefix}{}", served.plural());
        Self { served, id, plural_id }
    }

    /// By the singular or plural id; plurals are known without their hyphens too.
    pub(super) fn find(catalog: &Catalog, id: &str) -> Option<Self> {
        let (group, word) = match id.rsplit_once('.') {
            // The core group is written without a dot.
            Some(("", _)) => return None,
            Some(parts) => parts,
            None => ("", id),
        };
        let word = word.to_ascii_lowercase();
        let mut of_group =
            catalog.resources().iter().filter(|resource| resource.group == group && !resource.is_virtual);
        let resource = of_group.find(|resource| {
            let names = &resource.names;
            names.plural == word
                || names.kind.to_ascii_lowercase() == word
                || names.singular == word
                || names.plural.replace('-', "") == word
        })?;
        Self::best(catalog, group, &resource.names.plural)
    }

    fn best(catalog: &Catalog, group: &str, plural: &str) -> Option<Self> {
        let versions = &catalog.group(group)?.versions;
        versions.iter().find_map(|version| catalog.find(group, version, plural)).cloned().map(Self::new)
    }

    pub(super) fn is_namespaced(&self) -> bool {
        self.served.resource.is_namespaced()
    }

    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.served.group() == group && self.served.plural() == plural
    }

    pub(super) fn target(&self, namespace: &str, name: &str) -> Target {
        Target::new(self.served.clone(), namespace, name)
    }

    /// Where the Kubernetes API has its group and version.
    pub(super) fn kubernetes_root(&self) -> String {
        let gvk = self.served.gvk();
        let root = if gvk.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", gvk.group) };
        format!("{root}/{}", gvk.version)
    }

    /// Where the Kubernetes API has it.
    pub(super) fn kubernetes_path(&self, namespace: &str, name: &str) -> String {
        let root = self.kubernetes_root();
        let scope = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        format!("{root}{scope}/{}{name}", self.served.plural())
    }

    pub(super) fn attributes<'a>(&'a self, verb: &'a str, namespace: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes {
            is_resource: true,
            verb,
            group: self.served.group(),
            resource: self.served.plural(),
            namespace,
            name,
            ..Attributes::default()
        }
    }

    pub(super) fn allows(&self, call: &Call, verb: &str, namespace: &str, name: &str) -> bool {
        call.server.auth.rbac.authorize(&call.user, &self.attributes(verb, namespace, name)).allowed
    }
}

/// The namespaces in which a binding of their own gives the caller anything.
pub(super) fn own_namespaces(call: &Call) -> Vec<String> {
    let bindings = call.server.cache.collection(BINDINGS).list("");
    let names_caller = |binding: &Value| {
        let mut subjects = binding["subjects"].as_array().into_iter().flatten();
        subjects.any(|subject| {
            let name = subject["name"].as_str().unwrap_or_default();
            match subject["kind"].as_str() {
                Some("User") => name == call.user.name,
                Some("Group") => call.user.is_member_of(name),
                Some("ServiceAccount") => {
                    let namespace = subject["namespace"].as_str().unwrap_or_default();
                    call.user.name == format!("system:serviceaccount:{namespace}:{name}")
                }
                _ => false,
            }
        })
    };
    let found: BTreeSet<String> = bindings
        .iter()
        .filter(|binding| names_caller(&binding.json()))
        .map(|binding| binding.namespace().to_owned())
        .collect();
    found.into_iter().collect()
}

pub(super) fn root(call: &Call, root: &str) -> Value {
    let base = reply::base(call);
    json!({
        "type": "apiRoot", "id": "v1", "apiVersion": { "group": "", "path": root, "version": "v1" },
        "links": {
            "root": format!("{base}{root}"), "self": format!("{base}{root}"), "schemas": format!("{base}{root}/schemas"),
            "subscribe": format!("{base}{root}/subscribe"),
        },
    })
}

/// All kinds that the caller may look at.
pub(super) fn list(call: &Call, root: &str) -> Value {
    let namespaces = own_namespaces(call);
    let kinds = call.catalog.resources().iter().filter(|resource| !resource.is_virtual);
    let schemas = kinds.filter_map(|kind| Schema::best(&call.catalog, &kind.group, &kind.names.plural));
    let data: Vec<Value> = schemas.filter_map(|schema| view(call, root, &schema, &namespaces)).collect();
    json!({
        "type": "collection", "resourceType": "schema", "links": { "self": format!("{}{root}/schemas", reply::base(call)) },
        "actions": {}, "count": data.len(), "data": data,
    })
}

pub(super) fn get(call: &Call, root: &str, id: &str) -> Result<Value, ApiError> {
    let schema = Schema::find(&call.catalog, id).ok_or_else(|| reply::no_schema(id))?;
    view(call, root, &schema, &own_namespaces(call)).ok_or_else(|| reply::no_schema(id))
}

/// `None` if the caller may neither list nor read it.
fn view(call: &Call, root: &str, schema: &Schema, namespaces: &[String]) -> Option<Value> {
    let verbs = &schema.served.resource.verbs;
    let may = |verb: &str| {
        let here = schema.is_namespaced() && namespaces.iter().any(|ns| schema.allows(call, verb, ns, ""));
        verbs.contains(&verb) && (schema.allows(call, verb, "", "") || here)
    };
    let methods = |pairs: &[(&str, &'static str)]| -> Vec<&'static str> {
        pairs.iter().filter(|(verb, _)| may(verb)).map(|(_, method)| *method).collect()
    };
    let collection = methods(&[("list", "GET"), ("create", "POST")]);
    let resource = methods(&[("get", "GET"), ("update", "PUT"), ("patch", "PATCH"), ("delete", "DELETE")]);
    if !collection.contains(&"GET") && !resource.contains(&"GET") {
        return None;
    }
    let base = reply::base(call);
    let gvk = schema.served.gvk();
    let columns = Printer::new(&schema.served).columns();
    let columns: Vec<Value> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            json!({ "name": column["name"], "type": column["type"], "field": format!("$.metadata.fields[{i}]") })
        })
        .collect();
    Some(json!({
        "id": schema.id, "type": "schema", "pluralName": schema.plural_id, "description": "",
        "links": {
            "self": format!("{base}{root}/schemas/{}", schema.id),
            "collection": format!("{base}{root}/{}", schema.plural_id),
        },
        "collectionMethods": collection, "resourceMethods": resource, "resourceFields": {},
        "attributes": {
            "group": gvk.group, "version": gvk.version, "kind": gvk.kind, "resource": schema.served.plural(),
            "namespaced": schema.is_namespaced(), "verbs": verbs, "columns": columns,
        },
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn kinds_have_several_names() {
        let catalog = Catalog::new(croft_api::builtin().iter().cloned(), BTreeMap::new());
        for (name, id) in [
            ("secrets", "secret"),
            ("secret", "secret"),
            ("persistentvolumeclaims", "persistentvolumeclaim"),
            ("storage.k8s.io.storageclasses", "storage.k8s.io.storageclass"),
            ("rbac.authorization.k8s.io.clusterrole", "rbac.authorization.k8s.io.clusterrole"),
        ] {
            let schema = Schema::find(&catalog, name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(schema.id, id);
        }
        for unknown in ["", "secretz", "apps.secrets", ".secrets", "subjectaccessreviews"] {
            assert!(Schema::find(&catalog, unknown).is_none(), "{unknown}");
        }
    }
}

//! Which kinds there are: where their objects are found, and which of them have rules.

use std::collections::BTreeMap;

use croft_api::{Admit, AdmitDelete, Scope, rules_of};
use serde_json::Value;

/// A kind that rules are about, or look at.
#[derive(Clone, Debug)]
pub struct Kind {
    pub group: String,
    /// The one that objects are stored in, and shown to rules.
    pub version: String,
    pub plural: String,
    pub kind: String,
    pub scope: Scope,
    pub admit: Option<Admit>,
    pub admit_delete: Option<AdmitDelete>,
}

impl Kind {
    pub fn has_rules(&self) -> bool {
        self.admit.is_some() || self.admit_delete.is_some()
    }

    /// What can be asked about it.
    pub fn operations(&self) -> Vec<&'static str> {
        let mut operations = Vec::new();
        if self.admit.is_some() {
            operations.extend(["CREATE", "UPDATE"]);
        }
        if self.admit_delete.is_some() {
            operations.push("DELETE");
        }
        operations
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Of all objects, of those of a namespace, or of one.
    pub(crate) fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.api_version());
        if !namespace.is_empty() && self.scope == Scope::Namespaced {
            path = format!("{path}/namespaces/{}", segment(namespace));
        }
        path = format!("{path}/{}", self.plural);
        if name.is_empty() { path } else { format!("{path}/{}", segment(name)) }
    }
}

/// Names come from objects that nobody has validated yet: whatever is in them, they are one segment of a path.
fn segment(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    // Dots are plain too, but for the two names that mean a directory.
    let has_plain_dots = !matches!(name, "." | "..");
    let encoded = |byte: u8| match byte {
        byte if is_plain(byte) || byte == b'.' && has_plain_dots => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(encoded).collect()
}

/// All kinds that Croft knows.
#[derive(Debug)]
pub struct Kinds(BTreeMap<(String, String), Kind>);

impl Kinds {
    pub fn all() -> Self {
        let builtin = croft_api::builtin()
            .iter()
            .filter(|row| !row.is_virtual)
            .map(|row| kind(&row.group, &row.storage_version, &row.names.plural, &row.names.kind, row.scope));
        let custom = croft_api::shipped_definitions().map(|definition| custom(&definition));
        let all = builtin.chain(custom);
        Self(all.map(|kind| ((kind.group.clone(), kind.plural.clone()), kind)).collect())
    }

    pub fn get(&self, group: &str, plural: &str) -> Option<&Kind> {
        self.0.get(&(group.to_owned(), plural.to_owned()))
    }

    /// Groups that Kubernetes itself does not have, in order.
    pub(crate) fn custom_groups(&self) -> impl Iterator<Item = &str> {
        let is_builtin = |group: &str| croft_api::builtin().iter().any(|row| row.group == group);
        self.0.values().map(|kind| kind.group.as_str()).filter(move |group| !is_builtin(group))
    }

    pub fn with_rules(&self) -> impl Iterator<Item = &Kind> {
        self.0.values().filter(|kind| kind.has_rules())
    }
}

fn custom(definition: &Value) -> Kind {
    let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let stored = versions.into_iter().find(|version| version["storage"] == true);
    let version = stored.and_then(|version| version["name"].as_str()).unwrap_or_default();
    let scope = if text("/spec/scope") == "Namespaced" { Scope::Namespaced } else { Scope::Cluster };
    kind(text("/spec/group"), version, text("/spec/names/plural"), text("/spec/names/kind"), scope)
}

fn kind(group: &str, version: &str, plural: &str, kind: &str, scope: Scope) -> Kind {
    let (admit, admit_delete) = rules_of(group, plural);
    Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        scope,
        admit,
        admit_delete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_where_they_are_stored() {
        let kinds = Kinds::all();
        for (group, plural, namespace, name, expected) in [
            ("", "nodes", "", "n1", "/api/v1/nodes/n1"),
            ("", "persistentvolumeclaims", "a", "", "/api/v1/namespaces/a/persistentvolumeclaims"),
            ("kubevirt.io", "virtualmachines", "", "", "/apis/kubevirt.io/v1/virtualmachines"),
            ("network.harvesterhci.io", "vlanconfigs", "", "x", "/apis/network.harvesterhci.io/v1beta1/vlanconfigs/x"),
            // Whoever writes the name of another object does not choose what is asked.
            ("", "nodes", "", "../secrets?x", "/api/v1/nodes/..%2Fsecrets%3Fx"),
            ("", "nodes", "", "..", "/api/v1/nodes/%2E%2E"),
        ] {
            assert_eq!(kinds.get(group, plural).unwrap().path(namespace, name), expected);
        }
        assert!(kinds.get("", "pods").is_some_and(|kind| !kind.has_rules()));
        let operations = |group, plural| kinds.get(group, plural).unwrap().operations();
        assert_eq!(operations("kubevirt.io", "virtualmachines"), ["CREATE", "UPDATE", "DELETE"]);
        assert_eq!(operations("harvesterhci.io", "keypairs"), ["CREATE", "UPDATE"]);
    }
}

//! The Secrets that a machine refers to, of which a copy of it gets copies: each then goes with its own machine.

use std::collections::BTreeMap;

use croft_meta::{ApiError, object};
use serde_json::{Value, json};

use super::super::acting::Acting;
use super::super::reply::invalid;
use crate::prepare::random_suffix;

/// Copies that were planned or made.
#[derive(Debug, Default)]
pub(super) struct Copies(BTreeMap<String, Copy>);

#[derive(Debug)]
struct Copy {
    name: String,
    secret: Value,
}

impl Copies {
    /// Has the spec of a machine's template refer to copies, whose names begin with `prefix`.
    pub(super) fn plan(acting: &Acting<'_>, spec: &mut Value, prefix: &str) -> Result<Self, ApiError> {
        let mut copies = Self::default();
        for reference in references(spec) {
            let Some(name) = reference.as_str().filter(|name| !name.is_empty()).map(str::to_owned) else { continue };
            if !copies.0.contains_key(&name) {
                let Some(secret) = acting.find("", "secrets", acting.namespace, &name) else {
                    return Err(invalid("InvalidState", format!("the machine's secret {name:?} does not exist")));
                };
                copies.0.insert(name.clone(), Copy { name: format!("{prefix}-{}", random_suffix()?), secret });
            }
            *reference = json!(copies.0[&name].name);
        }
        if !copies.0.is_empty() {
            acting.may("get", "", "secrets")?;
            acting.may("create", "", "secrets")?;
        }
        Ok(copies)
    }

    /// Makes them, for nobody yet; all or none.
    pub(super) async fn make(&self, acting: &Acting<'_>) -> Result<(), ApiError> {
        for copy in self.0.values() {
            let mut wanted = json!({ "metadata": { "name": copy.name } });
            for field in ["type", "data"] {
                if !copy.secret[field].is_null() {
                    wanted[field] = copy.secret[field].clone();
                }
            }
            if let Err(error) = acting.create("", "secrets", acting.namespace, wanted).await {
                self.undo(acting).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// They go with their owner from now on.
    pub(super) async fn give_to(&self, acting: &Acting<'_>, owner: &Value) {
        let owners = json!({ "metadata": { "ownerReferences": [owner_reference(owner)] } });
        for copy in self.0.values() {
            acting.amend_as_platform("", "secrets", &copy.name, &owners).await;
        }
    }

    pub(super) async fn undo(&self, acting: &Acting<'_>) {
        for copy in self.0.values() {
            acting.delete_as_platform("", "secrets", &copy.name).await;
        }
    }
}

pub(super) fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": object::name(owner), "uid": object::uid(owner),
    })
}

/// The places in a template's spec that name a Secret of the machine's own.
fn references(spec: &mut Value) -> Vec<&mut Value> {
    const IN_VOLUME: [&str; 6] = [
        "/cloudInitNoCloud/secretRef/name",
        "/cloudInitNoCloud/networkDataSecretRef/name",
        "/cloudInitConfigDrive/secretRef/name",
        "/cloudInitConfigDrive/networkDataSecretRef/name",
        "/secret/secretName",
        "/sysprep/secret/name",
    ];
    const IN_CREDENTIAL: [&str; 2] =
        ["/sshPublicKey/source/secret/secretName", "/userPassword/source/secret/secretName"];
    let mut found = Vec::new();
    let Some(spec) = spec.as_object_mut() else { return found };
    for (list, value) in spec {
        let places: &[&str] = match list.as_str() {
            "volumes" => &IN_VOLUME,
            "accessCredentials" => &IN_CREDENTIAL,
            _ => continue,
        };
        for entry in value.as_array_mut().into_iter().flatten() {
            collect(entry, places, &mut found);
        }
    }
    found
}

fn collect<'a>(entry: &'a mut Value, places: &[&str], found: &mut Vec<&'a mut Value>) {
    // Several places of one entry: those that are there, told apart by their first step.
    let Some(fields) = entry.as_object_mut() else { return };
    for (field, value) in fields {
        let inner: Vec<&str> =
            places.iter().filter_map(|place| place.strip_prefix('/')?.strip_prefix(field.as_str())).collect();
        if inner.iter().any(|rest| rest.is_empty()) {
            found.push(value);
            continue;
        }
        let inner: Vec<&str> = inner.into_iter().filter(|rest| rest.starts_with('/')).collect();
        if !inner.is_empty() {
            collect(value, &inner, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_of_a_machine_is_found() {
        let mut spec = json!({
            "volumes": [
                {"name": "a", "cloudInitNoCloud": {"secretRef": {"name": "one"}, "networkDataSecretRef": {"name": "two"}}},
                {"name": "b", "cloudInitConfigDrive": {"secretRef": {"name": "three"}, "userData": "x"}},
                {"name": "c", "secret": {"secretName": "four"}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "no"}},
                {"name": "e", "sysprep": {"secret": {"name": "five"}}},
                {"name": "f", "sysprep": {"configMap": {"name": "no"}}},
            ],
            "accessCredentials": [
                {"sshPublicKey": {"source": {"secret": {"secretName": "six"}}, "propagationMethod": {"noCloud": {}}}},
                {"userPassword": {"source": {"secret": {"secretName": "seven"}}}},
            ],
            "networks": [{"name": "secret"}],
        });
        let mut names: Vec<String> =
            references(&mut spec).into_iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["five", "four", "one", "seven", "six", "three", "two"]);
        assert!(references(&mut json!({"volumes": null})).is_empty());
    }
}

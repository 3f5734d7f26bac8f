//! `harvesterhci.io/owned-by`: the machines that a claim belongs to, in Harvester's own form.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::virtual_machine::view::annotation;

const OWNED_BY: &str = "harvesterhci.io/owned-by";
const SCHEMA: &str = "kubevirt.io.virtualmachine";

/// Owners of one kind; machines are one of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Owners {
    schema: String,
    #[serde(default)]
    refs: Vec<String>,
}

fn read(meta: &ObjectMeta) -> Vec<Owners> {
    annotation(meta, OWNED_BY).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The machines, as `<namespace>/<name>`.
pub(super) fn of(meta: &ObjectMeta) -> Vec<String> {
    let machines = read(meta).into_iter().filter(|owners| owners.schema == SCHEMA);
    machines.flat_map(|owners| owners.refs).collect()
}

/// The change that adds a machine.
pub(super) fn with(meta: &ObjectMeta, machine: &str) -> Value {
    let mut all = read(meta);
    match all.iter_mut().find(|owners| owners.schema == SCHEMA) {
        Some(owners) => owners.refs.push(machine.to_owned()),
        None => all.push(Owners { schema: SCHEMA.to_owned(), refs: vec![machine.to_owned()] }),
    }
    change(meta, &all)
}

/// The change that takes a machine away.
pub(super) fn without(meta: &ObjectMeta, machine: &str) -> Value {
    let mut all = read(meta);
    for owners in all.iter_mut().filter(|owners| owners.schema == SCHEMA) {
        owners.refs.retain(|owner| owner != machine);
    }
    all.retain(|owners| !owners.refs.is_empty());
    change(meta, &all)
}

/// No owners, no annotation. Another machine may be at it too: the change holds only for what was read.
fn change(meta: &ObjectMeta, owners: &[Owners]) -> Value {
    let text = if owners.is_empty() { Value::Null } else { json!(text(owners)) };
    json!({ "metadata": { "resourceVersion": meta.resource_version, "annotations": { OWNED_BY: text } } })
}

fn text(owners: &[Owners]) -> String {
    json!(owners).to_string()
}

/// What a new claim of a machine says.
pub(super) fn first(machine: &str) -> (String, String) {
    let owners = [Owners { schema: SCHEMA.to_owned(), refs: vec![machine.to_owned()] }];
    (OWNED_BY.to_owned(), text(&owners))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_come_and_go_and_others_stay() {
        let meta = |text: Option<&str>| ObjectMeta {
            annotations: text.map(|text| [(OWNED_BY.to_owned(), text.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let after = |change: &Value| change["metadata"]["annotations"][OWNED_BY].as_str().map(str::to_owned);
        let one = after(&with(&meta(None), "ns/a"));
        assert_eq!(one.as_deref(), Some(r#"[{"refs":["ns/a"],"schema":"kubevirt.io.virtualmachine"}]"#));
        let two = after(&with(&meta(one.as_deref()), "ns/b"));
        assert_eq!(of(&meta(two.as_deref())), ["ns/a", "ns/b"]);
        assert_eq!(of(&meta(after(&without(&meta(two.as_deref()), "ns/a")).as_deref())), ["ns/b"]);
        assert_eq!(after(&without(&meta(one.as_deref()), "ns/a")), None);
        let foreign = r#"[{"schema":"other","refs":["x"]}]"#;
        let both = after(&with(&meta(Some(foreign)), "ns/a"));
        assert_eq!(of(&meta(both.as_deref())), ["ns/a"]);
        assert!(after(&without(&meta(both.as_deref()), "ns/a")).is_some_and(|text| text.contains("other")));
        assert!(of(&meta(Some("nonsense"))).is_empty());
    }
}

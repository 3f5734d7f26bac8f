//! Crates use only what is below them: the table of docs/architecture.md, enforced.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::output;

/// Each crate with its layer, and those of the same layer that it may use all the same.
const LAYERS: &[(&str, u8, &[&str])] = &[
    // 0: pure, no I/O.
    ("meta", 0, &[]),
    ("schema", 0, &["meta"]),
    ("apply", 0, &["meta", "schema"]),
    ("api", 0, &["meta", "schema"]),
    ("sha512", 0, &[]),
    // 1: I/O, one subject each.
    ("store", 1, &[]),
    ("pki", 1, &[]),
    ("qemu", 1, &[]),
    ("net", 1, &[]),
    ("block", 1, &[]),
    ("image", 1, &[]),
    ("files", 1, &["block"]),
    ("backup", 1, &["image"]),
    ("reconcile", 1, &[]),
    // 2: the server.
    ("apiserver", 2, &[]),
    // 3: those who act on objects, through the API alone.
    ("controllers", 3, &[]),
    ("agent", 3, &[]),
    ("support", 3, &[]),
    ("webhook", 3, &[]),
    // 4: the edge.
    ("web", 4, &[]),
    ("cli", 4, &["web"]),
];

/// Whoever acts on objects does so through the API, never beside it.
const FORBIDDEN: &[(&str, &str)] = &[
    ("controllers", "store"),
    ("controllers", "apiserver"),
    ("agent", "store"),
    ("agent", "apiserver"),
    ("support", "store"),
    ("support", "apiserver"),
    ("webhook", "store"),
    ("webhook", "apiserver"),
];

/// For tests alone: they may use everything, and everything may use them, but only as a dev-dependency.
const FOR_TESTS: &[&str] = &["testkit", "fuzz"];

const PREFIX: &str = "croft-";

pub(crate) fn check() -> Result<Vec<String>> {
    let metadata: Value = serde_json::from_str(&output("cargo", &["metadata", "--format-version=1", "--no-deps"])?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut problems = Vec::new();
    for package in packages {
        // The binary, the tests and this program have no prefix or are not libraries: they are above all layers.
        let Some(name) = crate_name(&package["name"]).filter(|name| *name != "e2e") else { continue };
        if !FOR_TESTS.contains(&name) && layer(name).is_none() {
            problems.push(format!("crates/{name} has no layer: add it to the table in xtask/src/layers.rs"));
            continue;
        }
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        problems.extend(dependencies.filter_map(|dependency| problem(name, dependency)));
    }
    Ok(problems)
}

fn problem(name: &str, dependency: &Value) -> Option<String> {
    let used = crate_name(&dependency["name"])?;
    // Tests may use anything; `kind` is null for an ordinary dependency.
    if dependency["kind"] == "dev" || FOR_TESTS.contains(&name) {
        return None;
    }
    if FOR_TESTS.contains(&used) {
        return Some(format!("crates/{name} uses {used} outside its tests"));
    }
    if !may_use(name, used) {
        return Some(format!("crates/{name} may not use crates/{used}"));
    }
    None
}

fn may_use(name: &str, used: &str) -> bool {
    let (Some((layer, siblings)), Some((used_layer, _))) = (layer(name), layer(used)) else { return false };
    !FORBIDDEN.contains(&(name, used)) && (used_layer < layer || siblings.contains(&used))
}

fn layer(name: &str) -> Option<(u8, &'static [&'static str])> {
    LAYERS.iter().find(|row| row.0 == name).map(|row| (row.1, row.2))
}

fn crate_name(name: &Value) -> Option<&str> {
    name.as_str()?.strip_prefix(PREFIX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_downwards() {
        for (name, used, allowed) in [
            ("schema", "meta", true),
            ("meta", "schema", false),
            ("apply", "schema", true),
            ("api", "apply", false),
            ("store", "meta", true),
            ("pki", "store", false),
            ("apiserver", "store", true),
            ("controllers", "api", true),
            ("controllers", "store", false),
            ("controllers", "apiserver", false),
            ("cli", "apiserver", true),
            ("cli", "unknown", false),
        ] {
            assert_eq!(may_use(name, used), allowed, "{name} -> {used}");
        }
    }

    #[test]
    fn testkit_is_for_tests() {
        assert!(problem("cli", &json!({ "name": "croft-testkit", "kind": "dev" })).is_none());
        assert!(problem("cli", &json!({ "name": "croft-testkit", "kind": null })).is_some());
        assert!(problem("cli", &json!({ "name": "serde", "kind": null })).is_none());
    }
}

//! The OpenAPI definitions of the built-in types, with their descriptions.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Map, Value};

/// Made by `build.rs`.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// All definitions by name (`io.k8s.api.core.v1.Pod`), in OpenAPI v3 with references to `#/components/schemas/`.
///
/// Unpacked on each call and several MiB large: keep what you make of it, not this.
pub fn openapi_definitions() -> Map<String, Value> {
    let mut text = Vec::new();
    // Both steps read what the build of this very program wrote, which the tests below read as well.
    GzDecoder::new(COMPRESSED).read_to_end(&mut text).expect("the definitions were compressed by the build");
    serde_json::from_slice(&text).expect("the definitions were written by the build")
}

/// The name of a kind's definition: `io.k8s.api.apps.v1.Deployment`.
pub fn definition_name(gvk: &croft_meta::Gvk) -> Option<String> {
    let index = crate::wire::TABLE.of_kind(&gvk.group, &gvk.version, &gvk.kind)?;
    Some(crate::wire::TABLE.get(index).name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Body, TABLE, Ty, TypeDef};
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_is_defined_and_described() {
        let all = openapi_definitions();
        for resource in crate::builtin() {
            for version in &resource.versions {
                let gvk = resource.gvk(&version.name);
                let definition = &all[&definition_name(&gvk).unwrap()];
                let named = json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
                assert_eq!(definition["x-kubernetes-group-version-kind"], json!([named]));
                assert!(!definition["description"].as_str().unwrap().is_empty(), "{gvk}");
                if !resource.is_virtual {
                    assert!(all.contains_key(&format!("{}List", definition_name(&gvk).unwrap())), "{gvk}");
                }
            }
        }
    }

    #[test]
    fn references_lead_somewhere() {
        fn walk(value: &Value, all: &Map<String, Value>) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let name = reference.strip_prefix("#/components/schemas/").unwrap();
                        assert!(all.contains_key(name), "{name}");
                    }
                    map.values().for_each(|v| walk(v, all));
                }
                Value::Array(items) => items.iter().for_each(|v| walk(v, all)),
                _ => {}
            }
        }
        let all = openapi_definitions();
        all.values().for_each(|definition| walk(definition, &all));
    }

    /// Two independent sources: the crate that describes the types, and our table of wire facts.
    #[test]
    fn the_table_has_exactly_the_described_fields() {
        fn names<'a>(def: &'a TypeDef, into: &mut BTreeSet<&'a str>) {
            for field in &def.fields {
                match field.ty {
                    Ty::Message(index) if field.inline => names(TABLE.get(index), into),
                    _ => drop(into.insert(field.json)),
                }
            }
        }
        let all = openapi_definitions();
        let mut compared = 0;
        for def in TABLE.types.iter().filter(|def| def.body == Body::Struct) {
            let Some(properties) = all.get(&def.name).and_then(|d| d["properties"].as_object()) else { continue };
            let mut ours = BTreeSet::new();
            names(def, &mut ours);
            let theirs: BTreeSet<&str> = properties
                .keys()
                .map(String::as_str)
                .filter(|k| !def.is_kind || !["apiVersion", "kind"].contains(k))
                .collect();
            assert_eq!(ours, theirs, "{}", def.name);
            compared += 1;
        }
        assert!(compared > 450, "{compared}");
    }

    #[test]
    fn extensions_are_added() {
        let all = openapi_definitions();
        let containers = &all["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-list-type"], "map");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        let spec = &all["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
        assert_eq!(spec["allOf"][0]["$ref"], "#/components/schemas/io.k8s.api.core.v1.PodSpec");
    }
}

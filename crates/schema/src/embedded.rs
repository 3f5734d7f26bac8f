//! The metadata of resources inside resources (`x-kubernetes-embedded-resource`).

use serde_json::Value;

use crate::model::{Additional, Schema};

/// Shows each of them, with where it is: `spec.template.metadata`. That of the resource as a whole is not among them.
pub fn each_embedded_metadata(schema: &Schema, value: &mut Value, visit: &mut dyn FnMut(&str, &mut Value)) {
    walk(schema, value, "", visit);
}

fn walk(schema: &Schema, value: &mut Value, path: &str, visit: &mut dyn FnMut(&str, &mut Value)) {
    match value {
        Value::Object(map) => {
            let is_inside = schema.embedded_resource && !path.is_empty();
            for (key, value) in map {
                let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if is_inside && key == "metadata" {
                    visit(&at, value);
                } else if let Some(property) = schema.properties.get(key) {
                    walk(property, value, &at, visit);
                } else if let Additional::Schema(additional) = &schema.additional {
                    walk(additional, value, &at, visit);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for (index, item) in list.iter_mut().enumerate() {
                walk(items, item, &format!("{path}[{index}]"), visit);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_are_found_wherever_they_are() {
        let inner = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let schema =
            Schema::from_json(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "one": inner, "list": {"type": "array", "items": inner},
            "map": {"type": "object", "additionalProperties": inner}, "free": {"type": "object"}}}}}))
            .unwrap();
        let resource = json!({"metadata": {"name": "x"}, "spec": {"metadata": 1}});
        let mut object = json!({"metadata": {}, "spec": {"one": resource, "list": [1, resource], "map": {"k": resource},
            "free": resource}});
        let mut found = Vec::new();
        each_embedded_metadata(&schema, &mut object, &mut |path, _| found.push(path.to_owned()));
        found.sort();
        assert_eq!(found, ["spec.list[1].metadata", "spec.map.k.metadata", "spec.one.metadata"]);
    }
}

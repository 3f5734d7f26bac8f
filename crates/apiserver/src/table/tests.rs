//! Tables of a custom and of a built-in kind; the values are those that kube-apiserver 1.34 answers with.

use serde_json::json;

use super::*;
use crate::openapi::widgets;

const NOW: i64 = 1_794_779_143;

fn widget() -> Value {
    json!({
        "apiVersion": "shop.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "one", "namespace": "default", "creationTimestamp": "2026-11-15T21:45:39Z"},
        "spec": {"replicas": 3, "sizes": [1, 2, 3], "flag": true, "num": 1.5, "obj": {"b": "x", "a": "y<"}, "iq": 5},
        "status": {"conditions": [{"type": "Foo", "status": "x"}, {"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn custom_cells_come_from_json_paths() {
    let catalog = widgets::catalog();
    let printer = Printer::new(catalog.find("shop.example.com", "v1", "widgets").unwrap());
    let row = printer.row(&widget(), Include::None, "v1", NOW);
    let cells = json!(["one", "True", 3, "1", true, 1.5, "{\"a\":\"y\\u003c\",\"b\":\"x\"}", "5", "4s"]);
    assert_eq!(row, json!({"cells": cells, "object": null}));
    let bare = json!({"metadata": {"name": "two"}, "spec": {"iq": "50%", "replicas": null}});
    let row = printer.row(&bare, Include::None, "v1", NOW);
    assert_eq!(row["cells"], json!(["two", null, null, null, null, null, null, "50%", null]));
}

#[test]
fn custom_columns_describe_themselves() {
    let catalog = widgets::catalog();
    let columns = Printer::new(catalog.find("shop.example.com", "v1", "widgets").unwrap()).columns();
    assert_eq!(
        (&columns[0]["name"], &columns[0]["format"], &columns[0]["priority"]),
        (&json!("Name"), &json!("name"), &json!(0))
    );
    assert_eq!(columns[2]["description"], "Custom resource definition column (in JSONPath format): .spec.replicas");
    assert_eq!(columns[2]["type"], "integer");
}

#[test]
fn without_columns_a_custom_resource_shows_its_age() {
    let catalog = widgets::catalog();
    let printer = Printer::new(catalog.find("shop.example.com", "v1alpha1", "widgets").unwrap());
    let names: Vec<Value> = printer.columns().iter().map(|c| json!([c["name"], c["type"]])).collect();
    assert_eq!(names, [json!(["Name", "string"]), json!(["Age", "date"])]);
    assert_eq!(printer.row(&widget(), Include::None, "v1", NOW)["cells"], json!(["one", "4s"]));
}

#[test]
fn cells_fit_their_type_or_are_null() {
    let cases = [
        ("integer", json!(2.9), json!(2)),
        ("integer", json!("2"), Value::Null),
        ("number", json!(3), json!(3)),
        ("number", json!(3.0), json!(3)),
        ("boolean", json!("true"), Value::Null),
        ("string", json!(null), json!("<no value>")),
        ("string", json!(1e21), json!("1e+21")),
        ("string", json!(0.5), json!("0.5")),
        ("date", json!("2020-01-01T00:00:00Z"), json!("6y320d")),
        ("date", json!("yesterday"), json!("<invalid>")),
        ("date", json!(""), json!("<unknown>")),
        ("date", json!(5), Value::Null),
        ("colour", json!("red"), Value::Null),
    ];
    for (ty, value, want) in cases {
        assert_eq!(cell(ty, &value, NOW), want, "{ty} {value}");
    }
}

#[test]
fn rows_carry_as_much_of_the_object_as_asked() {
    let catalog = widgets::catalog();
    let printer = Printer::new(catalog.find("shop.example.com", "v1", "widgets").unwrap());
    assert_eq!(printer.row(&widget(), Include::Object, "v1", NOW)["object"], widget());
    assert_eq!(
        printer.row(&widget(), Include::Metadata, "v1beta1", NOW)["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1beta1", "metadata": widget()["metadata"]})
    );
    assert_eq!(Include::parse("").unwrap(), Include::Metadata);
    let error = Include::parse("Foo").unwrap_err();
    assert_eq!(error.code(), 400);
    assert_eq!(
        error.message(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', \
         'None', or empty"
    );
}

#[test]
fn built_in_kinds_have_as_many_cells_as_columns() {
    let catalog = widgets::catalog();
    for resource in catalog.resources().iter().filter(|r| !r.is_custom && !r.is_virtual) {
        for version in &resource.versions {
            let printer = Printer::new(catalog.find(&resource.group, &version.name, &resource.names.plural).unwrap());
            let row = printer.row(&json!({"metadata": {"name": "x"}}), Include::None, "v1", NOW);
            assert_eq!(row["cells"].as_array().unwrap().len(), printer.columns().len(), "{}", resource.names.kind);
        }
    }
}

#[test]
fn only_the_first_table_of_a_watch_has_columns() {
    let table = document("v1", json!({"resourceVersion": "7"}), None, vec![]);
    assert_eq!(
        table,
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"},
            "columnDefinitions": null, "rows": []})
    );
}

use super::*;

const BOXES: &str = "\
group example.com

# A comment.
type Place
 host*: string

kind Box boxes namespaced v1,v1beta1! status scale all short=bx,bxs
 idle no box is packed
 column Big Size: integer .spec.size priority=1
 spec*:
  size*: int64 >=1 <=10 =3
  mode: string enum(a||b) =\"\"
  places: []Place items<=4 keys(host)
  labels: {}[]string
  lids: []
   color: string len<=9 /^[a-z]+$/
  owner: string fixed
  anything: object
  rule self.size > 1 :: too small
 version v1beta1
  value*: string

kind Lid lids cluster v1
";

fn boxes() -> Vec<Facts> {
    read(BOXES, &mut HashMap::new()).unwrap()
}

#[test]
fn headers_name_the_kind() {
    let kinds = boxes();
    let [first, second] = kinds.as_slice() else { panic!("{kinds:?}") };
    assert_eq!((first.group, first.kind, first.plural), ("example.com", "Box", "boxes"));
    assert_eq!(first.short_names, ["bx", "bxs"]);
    assert!(first.has_status && first.has_scale && first.in_all && first.scope == Scope::Namespaced);
    assert!(!second.has_status && !second.has_scale && !second.in_all && second.scope == Scope::Cluster);
    assert!(second.short_names.is_empty());
}

#[test]
fn versions_may_have_fields_of_their_own() {
    let kinds = boxes();
    let [stored, old] = kinds[0].versions.as_slice() else { panic!("two versions") };
    assert_eq!((stored.name, stored.is_deprecated), ("v1", false));
    assert_eq!((old.name, old.is_deprecated), ("v1beta1", true));
    assert_eq!(stored.columns.len(), 1);
    let column = stored.columns[0];
    assert_eq!((column.name, column.ty, column.path, column.priority), ("Big Size", "integer", ".spec.size", 1));
    assert!(old.columns.is_empty());
    assert_eq!(old.schema["required"], json!(["value"]));
    assert_eq!(old.schema["properties"]["metadata"], json!({"type": "object"}));
    assert!(old.schema["properties"]["spec"].is_null());
}

#[test]
fn fields_become_schemas() {
    let kinds = boxes();
    let spec = &kinds[0].versions[0].schema["properties"]["spec"];
    assert_eq!(spec["required"], json!(["size"]));
    assert_eq!(spec["x-kubernetes-validations"], json!([{"rule": "self.size > 1", "message": "too small"}]));
    let expected = json!({
        "size": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 10, "default": 3},
        "mode": {"type": "string", "enum": ["a", "", "b"], "default": ""},
        "places": {
            "type": "array", "maxItems": 4, "nullable": true,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["host"],
            "items": {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]},
        },
        "labels": {
            "type": "object", "nullable": true,
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
        "lids": {
            "type": "array", "nullable": true,
            "items": {"type": "object", "properties": {
                "color": {"type": "string", "maxLength": 9, "pattern": "^[a-z]+$", "nullable": true},
            }},
        },
        "owner": {
            "type": "string", "nullable": true,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "owner is immutable"}],
        },
        "anything": {"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true},
    });
    assert_eq!(spec["properties"], expected);
}

#[test]
fn mistakes_are_found_with_their_lines() {
    let cases = [
        ("kinds", "line 1: expected group, type or kind"),
        ("kind A as", "line 1: expected kind, plural, scope and versions"),
        ("kind A as wide v1", "line 1: \"wide\" is no scope"),
        ("kind A as cluster v1 stat", "line 1: unknown mark \"stat\""),
        ("kind A as cluster v1\n spec", "line 2: expected a field"),
        ("kind A as cluster v1\n   spec: string", "line 2: too deep"),
        ("kind A as cluster v1\n spec: strings", "line 2: unknown type \"strings\""),
        ("kind A as cluster v1\n spec: string\n  a: int", "line 2: has both a type and fields"),
        ("kind A as cluster v1\n a: int\n a: int", "line 3: a is there twice"),
        ("kind A as cluster v1\n a: int >=x", "line 2: unknown mark \">=x\""),
        ("kind A as cluster v1\n a: int =x", "line 2: unknown mark \"=x\""),
        ("kind A as cluster v1\n rule self", "line 2: a rule needs a message"),
        ("kind A as cluster v1\n column A", "line 2: expected a column"),
        ("kind A as cluster v1\n column A: string", "line 2: a column needs a type and a path"),
        ("kind A as cluster v1\n column A: string .a prio", "line 2: unknown mark \"prio\""),
    ];
    for (text, want) in cases {
        assert_eq!(read(text, &mut HashMap::new()).expect_err(text).to_string(), want);
    }
}

//! Objects and the cells that a real kube-apiserver 1.34 printed for them: `testdata/cells.json`.

use serde_json::{Value, json};

/// Ages depend on when the table was asked for, to the second.
fn is_age(cell: &Value) -> bool {
    cell.as_str().is_some_and(|text| {
        let digits = text.trim_end_matches(['s', 'm', 'h', 'd', 'y']);
        digits.len() < text.len()
            && !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_alphanumeric())
            && text.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn the_original_prints_the_same_cells() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../testdata/cells.json")).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let object = &case["object"];
        let gvk = croft_meta::object::gvk(object);
        let row = crate::builtin().iter().find(|r| r.group == gvk.group && r.names.kind == gvk.kind).unwrap();
        let created = croft_meta::time::parse(object["metadata"]["creationTimestamp"].as_str().unwrap()).unwrap();
        let got = (row.behaviour.cells)(object, created.as_second());
        let wanted = case["cells"].as_array().unwrap();
        let is_same =
            got.len() == wanted.len() && got.iter().zip(wanted).all(|(a, b)| a == b || (is_age(a) && is_age(b)));
        if !is_same {
            wrong.push(format!("{}:\n  got    {}\n  wanted {}", case["name"], json!(got), json!(wanted)));
        }
    }
    assert!(cases.len() > 60);
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn times_that_are_not_set_are_unknown() {
    assert_eq!(super::age(&json!({}), 0), "<unknown>");
}

//! Tables of paths, and what they find.

use serde_json::json;

use super::*;

fn data() -> Value {
    json!({
        "name": "shop",
        "metadata": {"annotations": {"example.com/owner": "me", "plain": "yes"}},
        "items": [
            {"name": "a", "price": 3, "weight": 1.5, "tags": ["x", "y"], "ready": true},
            {"name": "b", "price": 7, "weight": 2.5, "tags": []},
            {"name": "c (old)", "price": 9, "nothing": null},
        ],
    })
}

#[test]
fn paths_find_values() {
    let cases = [
        (".name", json!(["shop"])),
        ("$.name", json!(["shop"])),
        (".items[0].name", json!(["a"])),
        (".items[-1].name", json!(["c (old)"])),
        (".items[0:2].name", json!(["a", "b"])),
        (".items[:].price", json!([3, 7, 9])),
        (".items[::2].price", json!([3, 9])),
        (".items[*].name", json!(["a", "b", "c (old)"])),
        (".items[-2:].price", json!([7, 9])),
        (".items[1:1]", json!([])),
        (".items[0,2].price", json!([3, 9])),
        (".items[0]['name','price']", json!(["a", 3])),
        (".metadata.annotations['plain']", json!(["yes"])),
        (".metadata.annotations.example\\.com/owner", json!(["me"])),
        (".metadata.annotations['example\\.com/owner']", json!(["me"])),
        // A dot in quotes still separates, as upstream.
        (".metadata.annotations['example.com/owner']", json!([])),
        (".metadata.annotations.*", json!(["me", "yes"])),
        ("..price", json!([3, 7, 9])),
        (".items[?(@.name==\"b\")].price", json!([7])),
        (".items[?(@.name == 'c (old)')].price", json!([9])),
        (".items[?(@.price>3)].name", json!(["b", "c (old)"])),
        (".items[?(@.price<=7)].name", json!(["a", "b"])),
        (".items[?(@.price!=7)].name", json!(["a", "c (old)"])),
        (".items[?(@.weight>=2.0)].name", json!(["b"])),
        (".items[?(@.ready==true)].name", json!(["a"])),
        (".items[?(@.ready)].name", json!(["a"])),
        (".items[?(@.tags[0])].name", json!(["a", "b"])),
        (".items[?(@.missing==1)].name", json!([])),
        (".items[2].nothing", json!([null])),
        (".items[2].nothing.more", json!([])),
        (".nope.nope", json!([])),
        ("", json!([data()])),
    ];
    for (path, want) in cases {
        let found = JsonPath::parse(path).unwrap_or_else(|e| panic!("{path}: {e}")).all(&data());
        assert_eq!(found.map(Value::from), Some(want), "{path}");
    }
}

#[test]
fn values_of_the_wrong_shape_are_not_found() {
    for path in [
        ".items[3].name",
        ".name[0]",
        ".metadata[*]",
        ".name[?(@.x==1)]",
        ".items[?(@.price==\"3\")]",
        ".items[?(@.weight>2)]",
        ".items[?(@.ready>true)]",
        ".items[2:1]",
        ".items[::0]",
        "name",
    ] {
        assert_eq!(JsonPath::parse(path).unwrap().all(&data()), None, "{path}");
    }
}

#[test]
fn malformed_paths_are_refused() {
    for path in [
        ".items[",
        ".items[x]",
        ".items[1:2:3:4]",
        ".a[?(@.b",
        ".a[?(@.b==1)",
        "....a",
        "\"open",
        ".a[?(@.b=~1)]",
        "#",
        "1.2.3",
    ] {
        assert!(JsonPath::parse(path).is_err(), "{path}");
    }
    let deep = "[?(@".repeat(100) + &")]".repeat(100);
    assert!(JsonPath::parse(&deep).is_err());
}

#[test]
fn go_prints_floats_its_own_way() {
    for (float, text) in
        [(1.5, "1.5"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1e-5, "1e-05"), (0.0001, "0.0001")]
    {
        assert_eq!(to_text(&json!(float)), text);
    }
}

/// Every text of up to three of these pieces: no panic, whatever it parses to.
#[test]
fn no_text_makes_the_parser_panic() {
    let pieces =
        ["", ".", "..", "[", "]", "[?(", ")]", "@", "'", "\"", "==", "<", "*", ":", ",", "-1", "items", "é", " ", "\\"];
    let data = data();
    for n in 0..pieces.len().pow(3) {
        let text: String = (0..3).map(|digit| pieces[n / pieces.len().pow(digit) % pieces.len()]).collect();
        if let Ok(path) = JsonPath::parse(&text) {
            let _ = path.first(&data);
        }
    }
}

#[test]
fn a_path_that_finds_everything_over_and_over_finds_nothing() {
    let data = (0..60).fold(json!({"b": 1}), |inner, _| json!({"a": inner}));
    assert_eq!(JsonPath::parse("..a..b").unwrap().first(&data).map(Cow::into_owned), Some(json!(1)));
    // Sixty levels, of which each step may take any: fifty million ways.
    assert_eq!(JsonPath::parse("..a..a..a..a..a..a").unwrap().first(&data), None);
}

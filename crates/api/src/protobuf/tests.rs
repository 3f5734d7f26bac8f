//! Bodies made by Go's own serializer, and bodies nobody should send.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn fixtures() -> Vec<(String, Vec<u8>, Value)> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../testdata/protobuf.json")).unwrap();
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    };
    all.into_iter()
        .map(|f| (f["name"].as_str().unwrap().to_owned(), bytes(f["hex"].as_str().unwrap()), f["json"].clone()))
        .collect()
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        out.push(u8::try_from(length).unwrap());
        out.extend(bytes);
        out
    };
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &type_meta), field(2, raw)].concat()
}

#[test]
fn what_go_encodes_reads_as_the_json_go_writes() {
    for (name, bytes, expected) in fixtures() {
        let (gvk, got) = decode_request(&bytes).unwrap_or_else(|err| panic!("{name}: {err}"));
        assert_eq!(gvk.kind, expected["kind"].as_str().unwrap());
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn every_truncation_is_an_error_or_a_shorter_object() {
    for (_, bytes, _) in fixtures() {
        for end in 0..bytes.len() {
            let _ = decode_request(&bytes[..end]);
        }
    }
    let (_, pod, _) = fixtures().remove(0);
    assert_eq!(decode_request(&pod[..pod.len() - 5]), Err(ProtobufError::Truncated));
}

#[test]
fn bodies_without_the_prefix_are_refused() {
    assert_eq!(decode_request(b"{}"), Err(ProtobufError::NoMagic));
    assert_eq!(decode_request(b""), Err(ProtobufError::NoMagic));
    assert_eq!(decode_request(MAGIC), Err(ProtobufError::NoKind));
}

#[test]
fn unknown_kinds_are_named() {
    let err = decode_request(&body("v1", "Nonsense", b"")).unwrap_err();
    assert_eq!(err.to_string(), r#"no kind "Nonsense" is registered for version "v1""#);
}

#[test]
fn unknown_fields_are_skipped_and_groups_refused() {
    // Field 99, varint.
    let (_, got) = decode_request(&body("v1", "ConfigMap", &[0x98, 0x06, 0x01])).unwrap();
    assert_eq!(got, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
    assert_eq!(decode_request(&body("v1", "ConfigMap", &[0x0b])), Err(ProtobufError::IllegalWireType(3)));
}

#[test]
fn hostile_lengths_and_types_are_errors() {
    let cases: &[(&[u8], ProtobufError)] = &[
        (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], ProtobufError::Truncated),
        (&[0xff; 12], ProtobufError::Overflow),
        (&[0x00, 0x00], ProtobufError::IllegalTag),
        (&[0x08, 0x01], ProtobufError::WrongWireType { field: "metadata".to_owned(), wire: 0 }),
    ];
    for (raw, expected) in cases {
        assert_eq!(decode_request(&body("v1", "ConfigMap", raw)).as_ref().unwrap_err(), expected);
    }
}

#[test]
fn deep_nesting_is_refused() {
    let mut schema = vec![];
    for _ in 0..200 {
        // `not` is field 28.
        let mut outer = vec![0xe2, 0x01];
        let mut length = schema.len();
        while length >= 0x80 {
            outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        outer.push(u8::try_from(length).unwrap());
        outer.extend(&schema);
        schema = outer;
    }
    let mut decoder = Decoder { messages: 0 };
    let index = TABLE.of_kind("apiextensions.k8s.io", "v1", "JSONSchemaProps").unwrap();
    assert_eq!(decoder.message(index, &schema, &mut Map::new(), 0), Err(ProtobufError::TooDeep));
}

#[test]
fn many_tiny_messages_are_refused() {
    // Two bytes each: an empty container in a pod's spec.
    let containers: Vec<u8> = [0x12, 0x00].repeat(MAX_MESSAGES);
    let index = TABLE.of_kind("", "v1", "PodSpec").unwrap();
    let mut decoder = Decoder { messages: 0 };
    assert_eq!(decoder.message(index, &containers, &mut Map::new(), 0), Err(ProtobufError::TooLarge));
}

#[test]
fn repeated_numbers_may_be_packed() {
    // PodSecurityContext.supplementalGroups, field 4: once packed, once not.
    let index = TABLE.of_kind("", "v1", "PodSecurityContext").unwrap();
    for raw in [&[0x22, 0x02, 0x01, 0x02][..], &[0x20, 0x01, 0x20, 0x02]] {
        let mut object = Map::new();
        Decoder { messages: 0 }.message(index, raw, &mut object, 0).unwrap();
        assert_eq!(object["supplementalGroups"], json!([1, 2]));
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..300), pick in 0..4_usize) {
        let kind = ["Pod", "Secret", "Event", "Node"][pick];
        let _ = decode_request(&body("v1", kind, &raw));
    }

    #[test]
    fn flipped_bytes_never_panic(at in any::<prop::sample::Index>(), with in any::<u8>(), which in 0..12_usize) {
        let mut all = fixtures();
        let which = which % all.len();
        let (_, mut bytes, _) = all.swap_remove(which);
        let at = at.index(bytes.len());
        bytes[at] = with;
        let _ = decode_request(&bytes);
    }
}

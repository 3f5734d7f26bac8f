//! How an object is written to the store and to the wire.
//!
//! The stored form is JSON with `apiVersion`, `kind` and `metadata` in front and without a
//! `resourceVersion`, which is not known before the write. The served form has the
//! `resourceVersion` spliced in as the first field of `metadata`; nothing is serialised again for
//! a GET, LIST or WATCH. See docs/adr/0003-stored-encoding.md.

use bytes::{BufMut, Bytes, BytesMut};
use croft_meta::Revision;
use serde_json::{Map, Value};

const METADATA: &[u8] = b"\"metadata\":{";
const RESOURCE_VERSION: &[u8] = b"\"resourceVersion\":\"";

/// An object's stored form. `resourceVersion` is left out; `apiVersion` and `kind` come first.
pub(crate) fn to_stored(object: &Value) -> Bytes {
    let mut out = BytesMut::with_capacity(1024).writer();
    write_object(&mut out, object);
    out.into_inner().freeze()
}

fn write_object(out: &mut bytes::buf::Writer<BytesMut>, object: &Value) {
    let empty = Map::new();
    let map = object.as_object().unwrap_or(&empty);
    out.get_mut().put_u8(b'{');
    for field in ["apiVersion", "kind"] {
        if let Some(value) = map.get(field) {
            write_member(out, field, value);
            out.get_mut().put_u8(b',');
        }
    }
    out.get_mut().put_slice(METADATA);
    let metadata = map.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    write_members(out, metadata.iter().filter(|(k, _)| *k != "resourceVersion"), true);
    out.get_mut().put_u8(b'}');
    write_members(out, map.iter().filter(|(k, _)| !matches!(k.as_str(), "apiVersion" | "kind" | "metadata")), false);
    out.get_mut().put_u8(b'}');
}

fn write_members<'a>(
    out: &mut bytes::buf::Writer<BytesMut>,
    members: impl Iterator<Item = (&'a String, &'a Value)>,
    mut first: bool,
) {
    for (name, value) in members {
        if !first {
            out.get_mut().put_u8(b',');
        }
        first = false;
        write_member(out, name, value);
    }
}

fn write_member(out: &mut bytes::buf::Writer<BytesMut>, name: &str, value: &Value) {
    // Writing a string or value into memory cannot fail: there is no I/O and every key is a string.
    let _ = serde_json::to_writer(&mut *out, name);
    out.get_mut().put_u8(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

/// The served form: the stored one with `resourceVersion` as the first field of `metadata`.
/// Bytes that are not an object of ours come back as they are.
pub(crate) fn to_served(stored: &[u8], revision: Revision) -> Bytes {
    let Some(at) = memchr::memmem::find(stored, METADATA).map(|i| i + METADATA.len()) else {
        return Bytes::copy_from_slice(stored);
    };
    let digits = revision.to_string();
    let mut out = BytesMut::with_capacity(stored.len() + RESOURCE_VERSION.len() + digits.len() + 2);
    out.put_slice(&stored[..at]);
    out.put_slice(RESOURCE_VERSION);
    out.put_slice(digits.as_bytes());
    out.put_u8(b'"');
    if stored.get(at) != Some(&b'}') {
        out.put_u8(b',');
    }
    out.put_slice(&stored[at..]);
    out.freeze()
}

/// The served form of the same object at another revision: what a DELETED event carries.
pub(crate) fn with_revision(served: &[u8], revision: Revision) -> Bytes {
    let Some(start) = memchr::memmem::find(served, RESOURCE_VERSION).map(|i| i + RESOURCE_VERSION.len()) else {
        return Bytes::copy_from_slice(served);
    };
    let Some(end) = memchr::memchr(b'"', &served[start..]).map(|i| start + i) else {
        return Bytes::copy_from_slice(served);
    };
    let mut out = BytesMut::with_capacity(served.len() + 4);
    out.put_slice(&served[..start]);
    out.put_slice(revision.to_string().as_bytes());
    out.put_slice(&served[end..]);
    out.freeze()
}

const START: &[u8] = b"{\"apiVersion\":\"";

/// `group/version` of an object as it is stored or served.
pub(crate) fn api_version(json: &[u8]) -> Option<&[u8]> {
    let version = json.strip_prefix(START)?;
    version.get(..memchr::memchr(b'"', version)?)
}

/// Rewrites the head of a served object: another `apiVersion` (all versions of a custom resource
/// share one stored form), or no type at all (items in the list of a built-in kind).
#[derive(Debug)]
pub(crate) struct Head {
    stored: Vec<u8>,
    wanted: Vec<u8>,
}

impl Head {
    pub(crate) fn new(stored_api_version: &str, api_version: Option<&str>, kind: &str) -> Self {
        let head = |version: &str| format!("{{\"apiVersion\":\"{version}\",\"kind\":\"{kind}\",").into_bytes();
        Self { stored: head(stored_api_version), wanted: api_version.map_or_else(|| b"{".to_vec(), head) }
    }

    /// The two pieces that make the object with its new head.
    pub(crate) fn pieces<'a>(&'a self, served: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let rest = served.strip_prefix(self.stored.as_slice()).or_else(|| self.after_another_head(served));
        match rest {
            Some(rest) => (&self.wanted, rest),
            None => (b"", served),
        }
    }

    /// Objects that were stored before their definition chose another version to store keep the head of their time.
    fn after_another_head<'a>(&self, served: &'a [u8]) -> Option<&'a [u8]> {
        let version = served.strip_prefix(START)?;
        let end = memchr::memchr(b'"', version)?;
        let kind = &self.stored[START.len() + memchr::memchr(b'"', &self.stored[START.len()..])?..];
        version[end..].strip_prefix(kind)
    }

    /// Has the object this head already?
    pub(crate) fn is_on(&self, served: &[u8]) -> bool {
        self.wanted.len() > 1 && served.starts_with(&self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn served_form_has_the_revision_and_everything_else() {
        let object = json!({"data": {"metadata\":{": "x"}, "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "resourceVersion": "3"}});
        let served = to_served(&to_stored(&object), Revision(17));
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = json!("17");
        assert_eq!(serde_json::from_slice::<Value>(&served).unwrap(), expected);

        let deleted = with_revision(&served, Revision(100));
        expected["metadata"]["resourceVersion"] = json!("100");
        assert_eq!(serde_json::from_slice::<Value>(&deleted).unwrap(), expected);
    }

    #[test]
    fn empty_metadata_stays_valid_json() {
        let served = to_served(&to_stored(&json!({"apiVersion": "v1", "kind": "X"})), Revision(1));
        assert_eq!(
            serde_json::from_slice::<Value>(&served).unwrap(),
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"resourceVersion": "1"}})
        );
    }

    #[test]
    fn head_changes_the_version_or_drops_the_type() {
        let served = to_served(&to_stored(&json!({"apiVersion": "a/v1", "kind": "X", "metadata": {}})), Revision(1));
        let to = |version| {
            let head = Head::new("a/v1", version, "X");
            let (a, b) = head.pieces(&served);
            serde_json::from_slice::<Value>(&[a, b].concat()).unwrap()
        };
        assert_eq!(to(Some("a/v2"))["apiVersion"], "a/v2");
        assert_eq!(to(None), json!({"metadata": {"resourceVersion": "1"}}));

        let older = to_served(&to_stored(&json!({"apiVersion": "a/v0", "kind": "X", "metadata": {}})), Revision(1));
        let head = Head::new("a/v1", Some("a/v1"), "X");
        assert!(head.is_on(&served) && !head.is_on(&older));
        let (a, b) = head.pieces(&older);
        assert_eq!([a, b].concat(), served);
    }
}

//! One object at one revision.

use bytes::Bytes;
use croft_meta::Revision;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::encoding;

/// Immutable and shared: by the collection, its history and the responses under way.
#[derive(Debug)]
pub(crate) struct Object {
    /// The served JSON, in the storage version.
    pub(crate) bytes: Bytes,
    pub(crate) revision: Revision,
    /// `namespace/name`, or `name`.
    id: Box<str>,
    /// Sorted by key; kept apart so that a selector needs no parsing.
    labels: Box<[(Box<str>, Box<str>)]>,
}

impl Object {
    pub(crate) fn new(id: &str, stored: &[u8], revision: Revision) -> Self {
        Self { bytes: encoding::to_served(stored, revision), revision, id: id.into(), labels: read_labels(stored) }
    }

    /// The last state of a deleted object, at the revision of its deletion.
    pub(crate) fn deleted(&self, revision: Revision) -> Self {
        Self {
            bytes: encoding::with_revision(&self.bytes, revision),
            revision,
            id: self.id.clone(),
            labels: self.labels.clone(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Empty for cluster-scoped objects.
    pub(crate) fn namespace(&self) -> &str {
        self.id.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.id.split_once('/').map_or(&self.id, |(_, name)| name)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// The object parsed. What the store holds was written by us, so it parses; damaged bytes read as null.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    /// The JSON of `metadata`, found without building the rest.
    pub(crate) fn metadata(&self) -> Option<&str> {
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        serde_json::from_slice::<Outer<'_>>(&self.bytes).ok().map(|outer| outer.metadata.get())
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + 128
    }
}

/// Only `metadata.labels`, skipping over the rest without building it.
fn read_labels(stored: &[u8]) -> Box<[(Box<str>, Box<str>)]> {
    #[derive(Deserialize)]
    struct Outer {
        metadata: Option<Metadata>,
    }
    #[derive(Deserialize)]
    struct Metadata {
        labels: Option<std::collections::BTreeMap<Box<str>, Box<str>>>,
    }
    serde_json::from_slice::<Outer>(stored)
        .ok()
        .and_then(|outer| outer.metadata?.labels)
        .map(|labels| labels.into_iter().collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_what_the_parsed_object_has() {
        let stored = encoding::to_stored(&json!({
            "apiVersion": "v1", "data": {"metadata": "{}"}, "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"b": "c"}, "annotations": {"d": "\"}"}},
        }));
        let object = Object::new("ns/a", &stored, Revision::ZERO);
        let metadata: Value = serde_json::from_str(object.metadata().unwrap()).unwrap();
        assert_eq!(metadata, object.json()["metadata"]);
        assert_eq!(metadata["annotations"]["d"], "\"}");
    }
}

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
    /// The same as it was stored, if defaults were filled in since: they may be taken away again. Boxed: few objects have
    /// one.
    as_stored: Option<Box<Bytes>>,
}

impl Object {
    pub(crate) fn new(id: &str, stored: &[u8], revision: Revision) -> Self {
        let bytes = encoding::to_served(stored, revision);
        Self { bytes, revision, id: id.into(), labels: read_labels(stored), as_stored: None }
    }

    /// The same object, as it is with defaults that its definition got after it was stored.
    pub(crate) fn with_defaults(&self, defaulted: &Value) -> Self {
        let as_stored = Some(Box::new(self.as_stored().clone()));
        Self { as_stored, ..Self::new(&self.id, &encoding::to_stored(defaulted), self.revision) }
    }

    /// The same object, as it was stored; `None` if it is shown so.
    pub(crate) fn without_defaults(&self) -> Option<Self> {
        let bytes = Bytes::clone(self.as_stored.as_deref()?);
        let (id, labels) = (self.id.clone(), self.labels.clone());
        Some(Self { bytes, revision: self.revision, id, labels, as_stored: None })
    }

    /// The served JSON without defaults that its definition got after it was stored.
    pub(crate) fn as_stored(&self) -> &Bytes {
        self.as_stored.as_deref().unwrap_or(&self.bytes)
    }

    /// Is it shown as it was stored?
    pub(crate) fn is_as_stored(&self) -> bool {
        self.as_stored.is_none()
    }

    /// The last state of a deleted object, at the revision of its deletion.
    pub(crate) fn deleted(&self, revision: Revision) -> Self {
        Self {
            bytes: encoding::with_revision(&self.bytes, revision),
            revision,
            id: self.id.clone(),
            labels: self.labels.clone(),
            as_stored: None,
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
        self.bytes.len() + self.as_stored.as_ref().map_or(0, |stored| stored.len()) + 128
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

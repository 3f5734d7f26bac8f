//! The rules of a kind's own row, which see other objects through the cache.

use std::sync::Arc;

use croft_api::{Admission, Lookup};
use croft_meta::ApiError;
use jiff::Timestamp;
use serde_json::Value;

use crate::auth::Attributes;
use crate::cache::Collection;
use crate::call::{self, Call, Target};

pub(super) fn admit(call: &Call, target: &Target, object: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    let Some(admit) = target.served.resource.behaviour.admit else { return Ok(()) };
    if call.server.rules_are_outside {
        return Ok(());
    }
    let mut no_random = None;
    let mut admission = Admission {
        object,
        old,
        subresource: &target.subresource,
        is_internal: call.is_internal,
        user: &call.user.name,
        lookup: &Seen(call),
        now: Timestamp::now(),
        random: &mut |bytes| no_random = no_random.or(getrandom::fill(bytes).err()),
    };
    admit(&mut admission)?;
    // What was made up without randomness must not be stored.
    no_random.map_or(Ok(()), |error| Err(ApiError::internal(error)))
}

pub(super) fn admit_delete(call: &Call, target: &Target, object: &Value) -> Result<(), ApiError> {
    match target.served.resource.behaviour.admit_delete {
        // Croft's own parts delete what follows from a deletion that was admitted.
        Some(admit) if !call.is_internal && !call.server.rules_are_outside => admit(object, &Seen(call)),
        _ => Ok(()),
    }
}

/// Objects as the cache has them, in the version that they are stored in; and what the caller may do to them.
struct Seen<'a>(&'a Call);

impl Seen<'_> {
    fn collection(&self, group: &str, plural: &str) -> Arc<Collection> {
        self.0.server.cache.collection(&format!("{}/{plural}", if group.is_empty() { "core" } else { group }))
    }
}

impl Lookup for Seen<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        Some(self.collection(group, plural).get(&call::id(namespace, name))?.json())
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        self.collection(group, plural).list(namespace).iter().map(|object| object.json()).collect()
    }

    fn pods_beside_machines(&self, namespace: &str) -> Vec<Value> {
        self.list("", "pods", namespace)
    }

    fn mentioning(&self, group: &str, plural: &str, namespace: &str, text: &str) -> Vec<Value> {
        let finder = memchr::memmem::Finder::new(text);
        let objects = self.collection(group, plural).list(namespace);
        objects.iter().filter(|object| finder.find(&object.bytes).is_some()).map(|object| object.json()).collect()
    }

    fn with_field(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        field: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Vec<Value> {
        let key = format!("\"{field}\":\"");
        let finder = memchr::memmem::Finder::new(&key);
        let has_it = |json: &[u8]| {
            finder.find_iter(json).any(|at| {
                let text = &json[at + key.len()..];
                let text = &text[..memchr::memchr(b'"', text).unwrap_or(text.len())];
                std::str::from_utf8(text).is_ok_and(is_wanted)
            })
        };
        let objects = self.collection(group, plural).list(namespace);
        objects.iter().filter(|object| has_it(&object.bytes)).map(|object| object.json()).collect()
    }

    fn caller_may(&self, verb: &str, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        let (resource, subresource) = plural.split_once('/').unwrap_or((plural, ""));
        let wanted = Attributes { is_resource: true, verb, group, resource, subresource, name, namespace, path: "" };
        self.0.server.auth.authorize(&self.0.user, &wanted).is_ok()
    }
}

//! What the tests of the rules share.

use croft_meta::ApiError;
use serde_json::Value;

use super::{Admission, Admit, Lookup};

/// Objects in memory, and what the caller may not do.
#[derive(Debug, Default)]
pub(super) struct Objects(Vec<(String, String, Value)>, Vec<String>);

pub(super) fn nothing() -> Objects {
    Objects::default()
}

impl Objects {
    pub(super) fn with(mut self, group: &str, plural: &str, object: Value) -> Self {
        self.0.push((group.to_owned(), plural.to_owned(), object));
        self
    }

    /// To objects of the namespace.
    pub(super) fn forbid(mut self, verb: &str, plural: &str, namespace: &str) -> Self {
        self.1.push(format!("{verb} {plural} {namespace}"));
        self
    }
}

impl Lookup for Objects {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.list(group, plural, namespace).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let is_wanted = |object: &Value| {
            namespace.is_empty() || object["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
        };
        let kind = self.0.iter().filter(|(own, of, _)| own == group && of == plural);
        kind.map(|(_, _, object)| object.clone()).filter(is_wanted).collect()
    }

    fn caller_may(&self, verb: &str, _: &str, plural: &str, namespace: &str, _: &str) -> bool {
        !self.1.contains(&format!("{verb} {plural} {namespace}"))
    }
}

/// A write by a user, or by Croft itself.
pub(super) fn write(
    admit: Admit,
    object: Value,
    old: Option<&Value>,
    lookup: &dyn Lookup,
    is_internal: bool,
) -> Result<Value, ApiError> {
    let mut object = object;
    let mut next = 0_u8;
    let mut random = |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_add(17);
            *byte = next;
        }
    };
    let mut admission = Admission {
        object: &mut object,
        old,
        subresource: "",
        is_internal,
        user: "alice",
        lookup,
        now: jiff::Timestamp::UNIX_EPOCH,
        random: &mut random,
    };
    admit(&mut admission)?;
    Ok(object)
}

#[track_caller]
pub(super) fn admitted(admit: Admit, object: Value) -> Value {
    write(admit, object, None, &nothing(), false).expect("admitted")
}

#[track_caller]
pub(super) fn refusal(admit: Admit, object: Value) -> ApiError {
    write(admit, object, None, &nothing(), false).expect_err("refused")
}

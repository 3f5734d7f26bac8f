//! Reviews as another API server sends them, for `croft-fuzz` alone: nothing else may use them.

use std::sync::LazyLock;

use croft_api::{Admission, Lookup};
use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::Kinds;
use crate::review::{self, Answer};

static KINDS: LazyLock<Kinds> = LazyLock::new(Kinds::all);

/// There is nothing else.
struct Nothing;

impl Lookup for Nothing {
    fn get(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Value> {
        None
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
        Vec::new()
    }

    fn caller_may(&self, _: &str, _: &str, _: &str, _: &str, _: &str) -> bool {
        true
    }
}

/// The answer to a review, if it is one. The objects in it are as their users wrote them: no schema of ours has seen them.
pub fn answered(body: &[u8]) -> Option<Value> {
    let request = review::read(body).ok()?;
    let kind = KINDS.get(&request.resource.group, &request.resource.resource)?;
    let mut object = request.object.clone();
    let ruled = match kind.admit {
        Some(admit) => admit(&mut Admission {
            object: &mut object,
            old: Some(&request.old_object).filter(|old| !old.is_null()),
            subresource: &request.sub_resource,
            is_internal: false,
            user: &request.user_info.username,
            lookup: &Nothing,
            now: Timestamp::UNIX_EPOCH,
            random: &mut |bytes| bytes.fill(7),
        }),
        None => Ok(()),
    };
    if let Some(admit) = kind.admit_delete {
        let _ = admit(&request.old_object, &Nothing);
    }
    let answer = match ruled {
        Ok(()) => Answer::Changed(croft_apply::json_patch::diff(&request.object, &object)),
        Err(error) => Answer::Refused(error),
    };
    if let Answer::Changed(operations) = &answer {
        let patch = Value::from(operations.clone()).to_string();
        let patched = croft_apply::json_patch::apply(&request.object, patch.as_bytes());
        assert_eq!(patched.ok(), Some(object), "{patch}");
    }
    let body = answer.body(&request.uid);
    assert_eq!(body["response"]["uid"], *request.uid);
    Some(body)
}

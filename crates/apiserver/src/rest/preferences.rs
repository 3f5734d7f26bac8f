//! `/v1/userpreferences`: what a user likes the interface to remember. Everyone has their own.
//!
//! They are kept in a ConfigMap of `harvester-system` for each user.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use croft_meta::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, invalid};
use crate::answer::{self, Answer};
use crate::call::{Call, Target, id};
use crate::pipeline::not_allowed;
use crate::write::Decision;

const NAMESPACE: &str = "harvester-system";
const KIND: &str = "userpreference";
/// Of names and values together.
const MAX_BYTES: usize = 64 << 10;
/// The name of an object has 253 characters.
const MAX_USER: usize = 110;

pub(super) async fn answer(call: &Call, path: &[&str]) -> Result<Answer, ApiError> {
    let own = call.user.name.as_str();
    match (call.info.verb, path) {
        ("get", []) => Ok(reply::collection(call, KIND, &[view(call, &read(call).await?)])),
        ("get" | "put", [user]) if *user != own => {
            Err(ApiError::new(404, "NotFound", format!("there are no preferences {user:?}")))
        }
        ("get", [_]) => Ok(answer::json(200, &view(call, &read(call).await?))),
        ("put", [_]) => write(call).await,
        ("get", _) => Err(ApiError::no_such_path()),
        _ => Err(not_allowed()),
    }
}

fn view(call: &Call, data: &Value) -> Value {
    let own = &call.user.name;
    let this = format!("{}/v1/userpreferences/{own}", reply::base(call));
    json!({ "id": own, "type": KIND, "links": { "self": this, "update": this }, "data": data })
}

/// Users' names may have characters that names of objects have not.
fn target(call: &Call) -> Result<Target, ApiError> {
    let own = &call.user.name;
    if own.len() > MAX_USER {
        return Err(invalid("InvalidState", "the user's name is too long to keep preferences for it"));
    }
    let mut name = "preferences-".to_owned();
    for byte in own.bytes() {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    let served = call.catalog.find("", "v1", "configmaps").ok_or_else(ApiError::no_such_path)?;
    Ok(Target::new(served.clone(), NAMESPACE, &name))
}

async fn read(call: &Call) -> Result<Value, ApiError> {
    let target = target(call)?;
    call.server.cache.fresh().await?;
    let found = call.server.cache.collection(target.storage_key()).get(&id(NAMESPACE, &target.name));
    Ok(found.map(|kept| kept.json()["data"].take()).filter(Value::is_object).unwrap_or_else(|| json!({})))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sent {
    data: BTreeMap<String, String>,
}

async fn write(call: &Call) -> Result<Answer, ApiError> {
    let sent: Sent = reply::body(call)?;
    let size: usize = sent.data.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_BYTES {
        return Err(ApiError::too_large(format!("preferences may have {MAX_BYTES} bytes")));
    }
    if let Some(key) = sent.data.keys().find(|key| !croft_meta::names::is_config_map_key(key).is_empty()) {
        return Err(invalid("InvalidFormat", format!("{key:?} is no name for a preference")));
    }
    let target = target(call)?;
    let data = json!(sent.data);
    keep(call, &target, &data).await?;
    Ok(answer::json(200, &view(call, &data)))
}

/// Made by the platform: users need no rights in its namespace.
async fn keep(call: &Call, target: &Target, data: &Value) -> Result<(), ApiError> {
    let change = call.server.write(target, false, |current| {
        let mut kept = current.ok_or_else(|| target.not_found())?.clone();
        kept["data"] = data.clone();
        Ok(Decision::Put(kept))
    });
    match change.await {
        Err(error) if error.code() == 404 => {}
        result => return result.map(drop),
    }
    let collection = Target { name: String::new(), ..target.clone() };
    let mut asking = Call::internal(&call.server, &collection);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": target.name, "namespace": NAMESPACE }, "data": data,
    });
    asking.body = object.to_string().into();
    match crate::verbs::create::create(&asking, &collection).await {
        // Another window was faster; the last word counts.
        Err(error) if error.reason() == "AlreadyExists" => Box::pin(keep(call, target, data)).await,
        result => result.map(drop),
    }
}

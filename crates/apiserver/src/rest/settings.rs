//! Rancher's settings, as far as clients of Harvester read and write them. What was changed is kept in a ConfigMap.

use croft_meta::ApiError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, invalid};
use super::{tokens, users};
use crate::answer::{self, Answer};
use crate::auth::{ANONYMOUS, Attributes};
use crate::call::{Call, Target};
use crate::verbs::create::{Tracking, create_object};
use crate::verbs::update::{Candidate, change};

pub(super) const PASSWORD_MIN_LENGTH: usize = 12;

const NAMESPACE: &str = "cattle-system";
const KEPT_IN: &str = "management-settings";
const MAX_VALUE: usize = 16 << 10;

/// A setting and what it is worth as long as nobody says otherwise.
struct Known {
    name: &'static str,
    default: &'static str,
    /// May be changed by clients.
    is_open: bool,
    /// May be read before logging in.
    is_public: bool,
}

const fn known(name: &'static str, default: &'static str, is_open: bool, is_public: bool) -> Known {
    Known { name, default, is_open, is_public }
}

const SETTINGS: [Known; 13] = [
    known("auth-token-max-ttl-minutes", "129600", false, false),
    known("auth-user-session-ttl-minutes", "960", false, false),
    known("cacerts", "", false, true),
    known("first-login", "true", true, true),
    known("password-min-length", "12", false, true),
    known("server-url", "", true, false),
    known("server-version", concat!("v", env!("CARGO_PKG_VERSION")), false, false),
    known("telemetry-opt", "out", true, true),
    known("ui-brand", "", true, true),
    known("ui-favicon", "", true, true),
    known("ui-index", "", false, true),
    known("ui-offline-preferred", "true", false, true),
    known("ui-pl", "harvester", true, true),
];

/// One setting, or all that the caller may see.
pub(super) fn get(call: &Call, name: Option<&str>) -> Result<Answer, ApiError> {
    let kept = kept(call);
    let visible = |setting: &&Known| setting.is_public || call.user.name != ANONYMOUS;
    let Some(name) = name else {
        let all: Vec<Value> = SETTINGS.iter().filter(visible).map(|setting| view(call, setting, &kept)).collect();
        return Ok(reply::collection(call, "setting", &all));
    };
    let setting = find(name)?;
    if !visible(&setting) {
        return Err(ApiError::new(401, "Unauthorized", "must authenticate"));
    }
    Ok(answer::json(200, &view(call, setting, &kept)))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Change {
    value: String,
}

pub(super) async fn put(call: &Call, name: &str) -> Result<Answer, ApiError> {
    let wanted = Attributes {
        is_resource: true,
        verb: "update",
        group: users::GROUP,
        resource: "settings",
        name,
        ..Attributes::default()
    };
    call.server.auth.authorize(&call.user, &wanted)?;
    let setting = find(name)?;
    let asked: Change = reply::body(call)?;
    if !setting.is_open {
        return Err(ApiError::forbidden(users::GROUP, "settings", name, "it is fixed in this server"));
    }
    if asked.value.len() > MAX_VALUE {
        return Err(invalid("MaxLengthExceeded", format!("value is longer than {MAX_VALUE} bytes")));
    }
    if name == "server-url" && !asked.value.is_empty() && !asked.value.starts_with("https://") {
        return Err(invalid("InvalidFormat", "server-url must begin with https://"));
    }
    store(call, name, &asked.value).await?;
    Ok(answer::json(200, &view(call, setting, &kept(call))))
}

fn find(name: &str) -> Result<&'static Known, ApiError> {
    let found = SETTINGS.iter().find(|setting| setting.name == name);
    found.ok_or_else(|| ApiError::not_found(users::GROUP, "settings", name))
}

/// `data` of the ConfigMap; null without one.
fn kept(call: &Call) -> Value {
    let stored = call.server.cache.collection("core/configmaps").get(&format!("{NAMESPACE}/{KEPT_IN}"));
    stored.map_or(Value::Null, |stored| stored.json()["data"].clone())
}

async fn store(call: &Call, name: &str, value: &str) -> Result<(), ApiError> {
    let served = call.catalog.find("", "v1", "configmaps").ok_or_else(ApiError::no_such_path)?.clone();
    let target = Target::new(served, NAMESPACE, KEPT_IN);
    let acting = Call::internal(&call.server, &target);
    let first = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": KEPT_IN, "namespace": NAMESPACE },
        "data": { name: value },
    });
    match create_object(&acting, &target, first, &tokens::options(), Tracking::Needed).await {
        Ok(_) => {}
        Err(error) if error.reason() == "AlreadyExists" => {
            change(&acting, &target, &tokens::options(), |stored| {
                let mut stored = stored.clone();
                stored["data"][name] = json!(value);
                Ok(Candidate::Untracked(stored))
            })
            .await?;
        }
        Err(error) => return Err(error),
    }
    call.server.cache.fresh().await.map(drop)
}

fn view(call: &Call, setting: &Known, kept: &Value) -> Value {
    let name = setting.name;
    let default = match name {
        "cacerts" => call.server.ca.cert_pem().to_owned(),
        "server-url" => reply::base(call),
        _ => setting.default.to_owned(),
    };
    let changed = kept.get(name).and_then(Value::as_str);
    let this = format!("{}/v3/settings/{name}", reply::base(call));
    let mut links = json!({ "self": this });
    if setting.is_open {
        links["update"] = json!(this);
    }
    json!({
        "id": name, "name": name, "type": "setting", "baseType": "setting", "links": links, "actions": {},
        "value": changed.unwrap_or(&default), "default": default, "customized": changed.is_some(),
        "source": if changed.is_some() { "db" } else { "default" }, "metadata": { "name": name },
    })
}

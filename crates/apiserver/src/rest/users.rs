//! Users as Rancher's clients see them.

use croft_meta::{ApiError, time};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::reply;
use crate::answer::{self, Answer};
use crate::auth::Attributes;
use crate::auth::authenticate::LocalUser;
use crate::auth::authenticate::second_factor::SecondFactor;
use crate::call::Call;

pub(super) const GROUP: &str = "management.cattle.io";

pub(super) fn secret_name(user: &str) -> String {
    format!("user-{user}")
}

/// All users for whoever may list them; for others, and with `?me=true`, only the caller.
pub(super) fn list(call: &Call) -> Answer {
    if call.query.flag("me") || !may(call, "list", "") {
        return reply::collection(call, "user", &[me(call)]);
    }
    let wanted = |user: &LocalUser| call.query.get("username").is_none_or(|name| name == user.user.name);
    let users = call.server.auth.authenticator.local_users();
    let users: Vec<Value> = users.iter().filter(|user| wanted(user)).map(|user| view(call, user)).collect();
    reply::collection(call, "user", &users)
}

pub(super) fn get(call: &Call, id: &str) -> Result<Answer, ApiError> {
    let name = id.strip_prefix("user-").unwrap_or(id);
    if id == "me" || name == call.user.name {
        return Ok(answer::json(200, &me(call)));
    }
    let wanted = Attributes {
        is_resource: true,
        verb: "get",
        group: GROUP,
        resource: "users",
        name: id,
        ..Attributes::default()
    };
    call.server.auth.authorize(&call.user, &wanted)?;
    let user = call.server.auth.authenticator.local_user(name);
    let user = user.ok_or_else(|| ApiError::not_found(GROUP, "users", id))?;
    Ok(answer::json(200, &view(call, &user)))
}

fn may(call: &Call, verb: &str, name: &str) -> bool {
    let wanted = Attributes { is_resource: true, verb, group: GROUP, resource: "users", name, ..Attributes::default() };
    call.server.auth.rbac.authorize(&call.user, &wanted).allowed
}

/// The caller, who need not be a local user.
fn me(call: &Call) -> Value {
    if let Some(local) = call.server.auth.authenticator.local_user(&call.user.name) {
        return view(call, &local);
    }
    let name = &call.user.name;
    json!({
        "id": name, "type": "user", "baseType": "user", "username": name, "name": name, "enabled": true, "me": true,
        "mustChangePassword": false, "principalIds": [format!("system://{name}")], "links": {}, "actions": {},
    })
}

/// Until when nobody can log in as this user; `null` if somebody can.
fn locked_until(call: &Call, name: &str) -> Option<String> {
    let until = call.server.auth.authenticator.lockouts().until(name);
    until.filter(|until| *until > Timestamp::now()).map(time::format_seconds)
}

fn view(call: &Call, user: &LocalUser) -> Value {
    let name = &user.user.name;
    let id = secret_name(name);
    let users = format!("{}/v3/users", reply::base(call));
    let action = |name: &str| format!("{users}?action={name}");
    let factor = user.second_factor.as_ref();
    json!({
        "id": id, "type": "user", "baseType": "user", "username": name, "name": name, "enabled": true,
        "me": *name == call.user.name, "mustChangePassword": user.must_change_password, "created": user.created,
        "principalIds": [format!("local://{id}")], "uuid": user.user.uid, "lockedUntil": locked_until(call, name),
        "totpEnabled": factor.is_some(), "recoveryCodesLeft": factor.map(SecondFactor::recovery_codes_left),
        "links": { "self": format!("{users}/{id}") },
        "actions": {
            "changepassword": action("changepassword"), "enabletotp": action("enabletotp"),
            "confirmtotp": action("confirmtotp"), "disabletotp": action("disabletotp"),
        },
    })
}

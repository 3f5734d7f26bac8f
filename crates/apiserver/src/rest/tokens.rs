//! The tokens of local users: made by logging in, as API keys, and for kubeconfigs. Each is a Secret (see
//! `auth::authenticate::bearer`), so that deleting it ends it everywhere.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::{ApiError, object, time};
use croft_pki::{BearerToken, Secret};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, invalid};
use crate::answer::{self, Answer};
use crate::auth;
use crate::auth::authenticate::{CREDENTIAL_ID, LocalUser, Proven, USERS_NAMESPACE, secret_text, validity};
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::user::UserInfo;
use crate::verbs::create::{Tracking, create_object};

const SECRET_TYPE: &str = "croft.io/token";
/// The longest that anything but a kubeconfig lasts.
const MAX_TTL: Duration = Duration::from_hours(90 * 24);
/// Of one user. The oldest session makes room for the newest.
const MAX_SESSIONS: usize = 200;
const MAX_KEYS: usize = 1_000;
const MAX_DESCRIPTION: usize = 1_024;
/// Names of tokens are short: some may be taken.
const TRIES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Session,
    ApiKey,
    Kubeconfig,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Session => validity::SESSION,
            Self::ApiKey => "apikey",
            Self::Kubeconfig => "kubeconfig",
        }
    }
}

/// What is asked for; `ttl` `None` is for ever.
pub(super) struct Order<'a> {
    pub(super) kind: Kind,
    pub(super) ttl: Option<Duration>,
    pub(super) description: &'a str,
}

/// `ttl` in milliseconds as clients send it: 0 means the default, too much means the most.
pub(super) fn lifetime(ttl: i64, default: Duration) -> Result<Duration, ApiError> {
    match u64::try_from(ttl) {
        Ok(0) => Ok(default),
        Ok(ttl) => Ok(Duration::from_millis(ttl).min(MAX_TTL)),
        Err(_) => Err(invalid("MinLimitExceeded", "ttl must not be negative")),
    }
}

/// The local user that the caller is. Somebody of the same name from elsewhere is not that user, whatever the groups; the
/// administrator's certificate is the exception, which could write such tokens anyway.
pub(super) fn account(call: &Call) -> Result<LocalUser, ApiError> {
    let found = call.server.auth.authenticator.local_user(&call.user.name);
    let is_same = |local: &LocalUser| {
        let is_known = call.user.uid == local.user.uid || call.user.is_member_of(auth::MASTERS);
        is_known && local.user.groups.iter().all(|group| call.user.is_member_of(group)) && !call.is_internal
    };
    let found = found.filter(is_same).ok_or_else(|| {
        ApiError::new(403, "Forbidden", format!("{:?} is not a local user and can have no tokens", call.user.name))
    })?;
    // Between the head of a request and its body there is time to change a password.
    let is_over =
        call.standing.is_some_and(|standing| standing != found.standing()) || has_ended(call, &found, current(call));
    if is_over { Err(ApiError::unauthorized()) } else { Ok(found) }
}

/// Whether the request was made with a token that is no good by now.
fn has_ended(call: &Call, owner: &LocalUser, name: &str) -> bool {
    let secrets = call.server.cache.collection("core/secrets");
    let is_over = || {
        let secret = secrets.get(&format!("{USERS_NAMESPACE}/{name}"));
        secret.is_none_or(|secret| owner.has_ended(&secret.json()))
    };
    name.starts_with("token-") && is_over()
}

/// Makes a token of the caller's own, as [`issue_while`] does.
pub(super) async fn issue_own(call: &Call, owner: &LocalUser, order: &Order<'_>) -> Result<(Value, Secret), ApiError> {
    let (token, text) = issue_while(call, &owner.proven(None), order).await?;
    if let Err(error) = account(call) {
        remove(call, token["id"].as_str().unwrap_or_default()).await?;
        return Err(error);
    }
    Ok((token, text))
}

/// Makes a token of somebody whose password has been proven. Should it change, or a second factor come, in the meantime, whoever
/// changed it may have ended the user's tokens before this one was there: then it is taken back.
pub(super) async fn issue_while(call: &Call, proven: &Proven, order: &Order<'_>) -> Result<(Value, Secret), ApiError> {
    let (token, text) = issue(call, proven, order).await?;
    // As fresh as the token.
    let now = call.server.auth.authenticator.local_user(&proven.user.name);
    let name = token["id"].as_str().unwrap_or_default();
    if now.is_none_or(|now| now.standing() != proven.standing || has_ended(call, &now, name)) {
        remove(call, name).await?;
        return Err(ApiError::new(401, "Unauthorized", "the password or the second factor was changed meanwhile"));
    }
    Ok((token, text))
}

/// Makes a token of the user. The answer has its text, which is shown this once.
async fn issue(call: &Call, proven: &Proven, order: &Order<'_>) -> Result<(Value, Secret), ApiError> {
    if order.description.len() > MAX_DESCRIPTION {
        return Err(invalid("MaxLengthExceeded", format!("description is longer than {MAX_DESCRIPTION} bytes")));
    }
    make_room(call, &proven.user, order.kind).await?;
    let mut tries = 0;
    loop {
        let token = BearerToken::generate_rancher().map_err(ApiError::internal)?;
        let secret = secret(&token, proven, order)?;
        let target = target(call, object::name(&secret))?;
        let acting = Call::internal(&call.server, &target);
        match create_object(&acting, &target, secret, &options(), Tracking::Needed).await {
            Ok(created) => {
                // The token works when its owner has it.
                call.server.cache.fresh().await?;
                return Ok((view(call, &created), token.reveal()));
            }
            Err(error) if error.reason() == "AlreadyExists" && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

fn secret(token: &BearerToken, proven: &Proven, order: &Order<'_>) -> Result<Value, ApiError> {
    let owner = &proven.user;
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let mut data = json!({
        "id": encode(token.id()), "hash": encode(&token.hash()), "user": encode(&owner.name),
        "account": encode(&owner.uid), "kind": encode(order.kind.as_str()), "description": encode(order.description),
        validity::GENERATION: encode(&proven.generation.to_string()),
    });
    if let Some(ttl) = order.ttl {
        let expires = SignedDuration::try_from(ttl).ok().and_then(|ttl| Timestamp::now().checked_add(ttl).ok());
        let expires = expires.ok_or_else(|| invalid("MaxLimitExceeded", "ttl is too long"))?;
        data["expires"] = json!(encode(&time::format_micros(expires)));
        data["ttl"] = json!(encode(&ttl.as_millis().to_string()));
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": { "name": format!("token-{}", token.id()), "namespace": USERS_NAMESPACE },
        "data": data,
    }))
}

/// Removes what has expired or ended, and the oldest sessions if there are too many.
async fn make_room(call: &Call, owner: &UserInfo, kind: Kind) -> Result<(), ApiError> {
    let now = Timestamp::now();
    let local = call.server.auth.authenticator.local_user(&owner.name);
    let is_over = |secret: &Value| {
        expiry(secret).is_some_and(|expires| expires <= now)
            || local.as_ref().is_some_and(|local| local.has_ended(secret))
    };
    let (over, mut live): (Vec<Value>, Vec<Value>) = of(call, &owner.uid).into_iter().partition(is_over);
    for secret in &over {
        remove(call, object::name(secret)).await?;
    }
    live.retain(|secret| secret_text(secret, "kind").as_deref() == Some(kind.as_str()));
    if kind != Kind::Session {
        let why = format!("the user has {MAX_KEYS} tokens of this kind already; delete some");
        return if live.len() < MAX_KEYS { Ok(()) } else { Err(ApiError::new(403, "Forbidden", why)) };
    }
    live.sort_by_key(|secret| created(secret).to_owned());
    for secret in live.iter().take((live.len() + 1).saturating_sub(MAX_SESSIONS)) {
        remove(call, object::name(secret)).await?;
    }
    Ok(())
}

/// Removes the sessions of a user, except for one.
pub(super) async fn end_sessions(call: &Call, uid: &str, except: &str) -> Result<(), ApiError> {
    let is_session = |secret: &Value| secret_text(secret, "kind").as_deref() == Some(Kind::Session.as_str());
    end(call, of(call, uid).into_iter().filter(is_session), except).await
}

/// Removes all that a user has got by showing a password, except for one: API keys and kubeconfigs too, since whoever knew the
/// password may have made them. Tokens that an administrator made have no account, and stay. After a new password this only cleans
/// up: see `auth::authenticate::validity`.
pub(super) async fn end_all(call: &Call, uid: &str, except: &str) -> Result<(), ApiError> {
    end(call, of(call, uid).into_iter(), except).await
}

async fn end(call: &Call, tokens: impl Iterator<Item = Value> + Send, except: &str) -> Result<(), ApiError> {
    for secret in tokens {
        if object::name(&secret) != except {
            remove(call, object::name(&secret)).await?;
        }
    }
    Ok(())
}

/// The name of the token that the request was made with; empty if it was another credential.
pub(super) fn current(call: &Call) -> &str {
    call.user.extra.get(CREDENTIAL_ID).and_then(|ids| ids.first()).map_or("", String::as_str)
}

/// The same; empty also if it was a credential that is no token.
pub(super) fn current_token(call: &Call) -> &str {
    Some(current(call)).filter(|name| name.starts_with("token-")).unwrap_or_default()
}

/// A token that somebody got by proving to be a local user, and not one that an administrator made.
pub(super) fn came_from_login(call: &Call, name: &str) -> bool {
    let secret = call.server.cache.collection("core/secrets").get(&format!("{USERS_NAMESPACE}/{name}"));
    secret.is_some_and(|secret| secret_text(&secret.json(), "account").is_some_and(|account| !account.is_empty()))
}

pub(super) fn list(call: &Call) -> Result<Answer, ApiError> {
    let owner = account(call)?;
    let tokens = of(call, &owner.user.uid);
    let good = tokens.iter().filter(|secret| !owner.has_ended(secret));
    let tokens: Vec<Value> = good.map(|secret| view(call, secret)).collect();
    Ok(reply::collection(call, "token", &tokens))
}

pub(super) fn get(call: &Call, id: &str) -> Result<Answer, ApiError> {
    Ok(answer::json(200, &view(call, &own(call, id)?)))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wish {
    ttl: i64,
    description: String,
}

/// An API key of the caller's own.
pub(super) async fn create(call: &Call) -> Result<Answer, ApiError> {
    let owner = account(call)?;
    let wish: Wish = reply::body(call)?;
    let ttl = Some(lifetime(wish.ttl, MAX_TTL)?);
    let order = Order { kind: Kind::ApiKey, ttl, description: &wish.description };
    let (mut token, text) = issue_own(call, &owner, &order).await?;
    token["token"] = json!(text.reveal());
    Ok(answer::json(201, &token))
}

pub(super) async fn delete(call: &Call, id: &str) -> Result<Answer, ApiError> {
    own(call, id)?;
    remove(call, id).await?;
    Ok(answer::json(200, &json!({})))
}

/// The caller's token of this name; others' are not there for them.
fn own(call: &Call, id: &str) -> Result<Value, ApiError> {
    let owner = account(call)?;
    let mut tokens = of(call, &owner.user.uid).into_iter();
    let found = tokens.find(|secret| object::name(secret) == id);
    found.ok_or_else(|| ApiError::new(404, "NotFound", format!("token {id:?} not found")))
}

/// The Secrets of a user's tokens.
fn of(call: &Call, uid: &str) -> Vec<Value> {
    let secrets = call.server.cache.collection("core/secrets").list(USERS_NAMESPACE);
    let tokens = secrets.iter().filter(|secret| secret.name().starts_with("token-")).map(|secret| secret.json());
    tokens
        .filter(|secret| secret["type"] == SECRET_TYPE && object::deletion_timestamp(secret).is_none())
        .filter(|secret| secret_text(secret, "account").as_deref() == Some(uid))
        .collect()
}

/// Ends a token; that it has ended already is as good.
pub(super) async fn remove(call: &Call, name: &str) -> Result<(), ApiError> {
    let target = target(call, name)?;
    match crate::verbs::delete::delete(&Call::internal(&call.server, &target), &target).await {
        Ok(_) => call.server.cache.fresh().await.map(drop),
        Err(error) if error.code() == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// A Secret of users or tokens.
pub(super) fn target(call: &Call, name: &str) -> Result<Target, ApiError> {
    let served = call.catalog.find("", "v1", "secrets").ok_or_else(ApiError::no_such_path)?.clone();
    Ok(Target::new(served, USERS_NAMESPACE, name))
}

pub(super) fn options() -> WriteOptions {
    WriteOptions {
        dry_run: false,
        field_manager: "croft".to_owned(),
        field_validation: FieldValidation::Ignore,
        force: false,
    }
}

fn created(secret: &Value) -> &str {
    secret.pointer("/metadata/creationTimestamp").and_then(Value::as_str).unwrap_or_default()
}

fn expiry(secret: &Value) -> Option<Timestamp> {
    time::parse(secret_text(secret, "expires")?.trim()).ok()
}

/// A token as clients see it, without its secret.
fn view(call: &Call, secret: &Value) -> Value {
    let text = |key: &str| secret_text(secret, key).unwrap_or_default();
    let name = object::name(secret);
    let expires = expiry(secret);
    let user = format!("user-{}", text("user"));
    let this = format!("{}/v3/tokens/{name}", reply::base(call));
    json!({
        "id": name, "name": name, "type": "token", "baseType": "token", "links": { "self": this, "remove": this },
        "actions": {}, "authProvider": "local", "created": created(secret), "current": current(call) == name,
        "description": text("description"), "enabled": true, "expired": expires.is_some_and(|at| at <= Timestamp::now()),
        "expiresAt": expires.map(time::format_seconds).unwrap_or_default(), "isDerived": text("kind") != "session",
        "labels": {}, "ttl": text("ttl").parse::<u64>().unwrap_or_default(), "userId": user,
        "userPrincipal": format!("local://{user}"), "uuid": object::uid(secret),
    })
}

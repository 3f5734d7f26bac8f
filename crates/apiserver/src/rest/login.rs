//! Logging in and out, and changing one's password. The second factor is next door, in `totp`.

use std::net::IpAddr;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::ApiError;
use croft_pki::{Secret, password};
use http::HeaderValue;
use http::header::SET_COOKIE;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, invalid};
use super::{csrf, settings, tokens, totp, users};
use crate::answer::{self, Answer};
use crate::auth::authenticate::{Code, Credentials, LONGEST, LocalUser, LoginError, Proven, SESSION_COOKIE, validity};
use crate::call::Call;
use crate::verbs::update::{Candidate, change};

/// Rancher's default for a session.
const SESSION_TTL: Duration = Duration::from_hours(16);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Login {
    username: String,
    password: Option<Secret>,
    /// A code, from those who have a second factor.
    totp: Option<Secret>,
    response_type: String,
    ttl: i64,
    description: String,
}

/// 201 and a token: in the body, or for browsers in a cookie.
pub(super) async fn login(call: &Call, address: Option<IpAddr>) -> Result<Answer, ApiError> {
    let asked: Login = reply::body(call)?;
    let given = asked.password.filter(|given| !given.reveal().is_empty());
    let Some(given) = given.filter(|_| !asked.username.is_empty()) else {
        return Err(invalid("MissingRequired", "username and password are required"));
    };
    let code = asked.totp.filter(|code| !code.reveal().trim().is_empty());
    let credentials = Credentials { name: asked.username.clone(), password: Some(given), code: Code::Sent(code) };
    if credentials.is_too_long() {
        return Err(invalid("MaxLengthExceeded", "username, password or totp is too long"));
    }
    let is_cookie = match asked.response_type.as_str() {
        "cookie" => true,
        "" | "token" | "json" => false,
        other => {
            return Err(invalid("InvalidOption", format!("responseType {other:?} is none of token, json, cookie")));
        }
    };
    let ttl = tokens::lifetime(asked.ttl, SESSION_TTL)?;
    call.trail.tried(&asked.username);
    let proven = check(call, credentials, address).await?;
    if let Some(used) = &proven.used {
        totp::spend(call, &proven.user.name, used, address).await?;
    }
    call.trail.user(&proven.user);
    let order = tokens::Order { kind: tokens::Kind::Session, ttl: Some(ttl), description: &asked.description };
    let (mut token, text) = tokens::issue_while(call, &proven, &order).await?;
    tracing::info!(user = asked.username, token = token["id"].as_str(), "logged in");
    if !is_cookie {
        token["token"] = json!(text.reveal());
        return Ok(answer::json(201, &token));
    }
    let mut answer = answer::json(201, &token);
    // 128 bits that only pages of this server can read back.
    let mut proof = [0_u8; 16];
    getrandom::fill(&mut proof).map_err(ApiError::internal)?;
    let proof = format!("{:032x}", u128::from_be_bytes(proof));
    let age = ttl.as_secs();
    set_cookie(
        &mut answer,
        &format!("{SESSION_COOKIE}={}; Path=/; Max-Age={age}; HttpOnly; Secure; SameSite=Lax", text.reveal()),
    )?;
    set_cookie(&mut answer, &format!("{}={proof}; Path=/; Max-Age={age}; Secure; SameSite=Lax", csrf::COOKIE))?;
    Ok(answer)
}

pub(super) async fn check(call: &Call, credentials: Credentials, address: Option<IpAddr>) -> Result<Proven, ApiError> {
    call.server.auth.authenticator.login(credentials, address).await.map_err(|error| {
        if let LoginError::Wrong(why) = &error {
            tracing::info!(reason = why, "login refused");
        }
        error.refusal().unwrap_or_else(|| ApiError::new(401, "Unauthorized", "authentication failed"))
    })
}

/// The password of somebody who is in already.
pub(super) async fn verify(
    call: &Call,
    name: &str,
    password: Secret,
    address: Option<IpAddr>,
) -> Result<Proven, ApiError> {
    let credentials = Credentials { name: name.to_owned(), password: Some(password), code: Code::NotAsked };
    check(call, credentials, address).await.map_err(|error| match error.code() {
        401 => wrong_current(),
        _ => error,
    })
}

fn wrong_current() -> ApiError {
    invalid("InvalidBodyContent", "invalid current password")
}

/// Ends the session, and takes the cookies back.
pub(super) async fn log_out(call: &Call) -> Result<Answer, ApiError> {
    let current = tokens::current(call);
    if !tokens::came_from_login(call, current) {
        return Err(invalid(
            "InvalidAction",
            "there is no session to end: these credentials did not come from a login",
        ));
    }
    if call.query.get("action") == Some("logoutAll") {
        let owner = tokens::account(call)?;
        totp::write(call, &owner, |stored| {
            validity::end_sessions(stored, "");
            Ok(())
        })
        .await?;
        tokens::end_sessions(call, &owner.user.uid, current).await?;
    }
    tokens::remove(call, current).await?;
    let mut answer = answer::json(200, &json!({}));
    for name in [SESSION_COOKIE, csrf::COOKIE] {
        set_cookie(&mut answer, &format!("{name}=; Path=/; Max-Age=0; Secure; SameSite=Lax"))?;
    }
    Ok(answer)
}

fn set_cookie(answer: &mut Answer, text: &str) -> Result<(), ApiError> {
    let mut value = HeaderValue::from_str(text).map_err(ApiError::internal)?;
    value.set_sensitive(true);
    answer.headers_mut().append(SET_COOKIE, value);
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NewPassword {
    current_password: Option<Secret>,
    new_password: Option<Secret>,
}

/// Replaces the caller's password and ends the caller's other tokens, which may be somebody else's.
pub(super) async fn change_password(call: &Call, address: Option<IpAddr>) -> Result<Answer, ApiError> {
    let asked: NewPassword = reply::body(call)?;
    let (Some(old), Some(new)) = (asked.current_password, asked.new_password) else {
        return Err(invalid("MissingRequired", "currentPassword and newPassword are required"));
    };
    let owner = tokens::account(call)?;
    check_new(&owner.user.name, &old, &new)?;
    let Proven { standing, .. } = verify(call, &owner.user.name, old, address).await?;
    // Hashing takes its time by design.
    let hash = call.server.auth.authenticator.hashing().run(move || password::hash(new.reveal())).await?;
    let hash = BASE64_STANDARD.encode(hash.map_err(ApiError::internal)?);
    let target = tokens::target(call, &users::secret_name(&owner.user.name))?;
    change(&Call::internal(&call.server, &target), &target, &tokens::options(), |stored| {
        // Of two who change it with the old one, the second does not know the password any more.
        if LocalUser::read(stored, &owner.user.name).is_none_or(|now| now.standing() != standing) {
            return Err(wrong_current());
        }
        let mut stored = stored.clone();
        stored["data"]["password-hash"] = json!(hash);
        if let Some(data) = stored["data"].as_object_mut() {
            data.remove("must-change-password");
        }
        // In the same write: whatever happens after it, nothing that the old one opened is good.
        validity::end_tokens(&mut stored, tokens::current_token(call));
        Ok(Candidate::Untracked(stored))
    })
    .await?;
    call.server.cache.fresh().await?;
    tokens::end_all(call, &owner.user.uid, tokens::current(call)).await?;
    tracing::info!(user = owner.user.name, "the password was changed");
    users::get(call, "me")
}

fn check_new(name: &str, old: &Secret, new: &Secret) -> Result<(), ApiError> {
    let least = settings::PASSWORD_MIN_LENGTH;
    if new.reveal().chars().count() < least {
        return Err(invalid("MinLengthExceeded", format!("Password must be at least {least} characters")));
    }
    if new.reveal().len() > LONGEST {
        return Err(invalid("MaxLengthExceeded", "the new password is too long"));
    }
    if new.reveal() == name {
        return Err(invalid("InvalidBodyContent", "Password cannot be the same as the username"));
    }
    if new == old {
        return Err(invalid("InvalidBodyContent", "the new password must differ from the current one"));
    }
    Ok(())
}

/// The ways to log in, of which there is one.
pub(super) fn providers(call: &Call, path: &[&str]) -> Result<Answer, ApiError> {
    let this = format!("{}/v3-public/localProviders/local", reply::base(call));
    let local: Value = json!({
        "id": "local", "type": "localProvider", "baseType": "authProvider",
        "links": { "self": this }, "actions": { "login": format!("{this}?action=login") },
    });
    match path {
        ["authProviders" | "authproviders" | "localProviders"] => Ok(reply::collection(call, "authProvider", &[local])),
        ["authProviders" | "localProviders", "local"] => Ok(answer::json(200, &local)),
        _ => Err(ApiError::no_such_path()),
    }
}

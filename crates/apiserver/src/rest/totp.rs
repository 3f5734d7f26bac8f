//! The second factor of the caller: begun, put in force by a code, and taken off again.

use std::net::IpAddr;

use croft_meta::ApiError;
use croft_pki::{Secret, TotpKey, totp};
use http::uri::Authority;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::login::{check, verify};
use super::reply::{self, invalid};
use super::{tokens, users};
use crate::answer::{self, Answer};
use crate::auth::authenticate::second_factor::{self, Unproven, Used};
use crate::auth::authenticate::{Code, Credentials, LocalUser, validity};
use crate::call::Call;
use crate::verbs::update::{Candidate, change};

/// What apps show above the code.
const ISSUER: &str = "Croft";
/// The reason of a write that did not happen, told to nobody.
const USED: &str = "TotpUsed";
/// The same, of a code that is right.
const RIGHT: &str = "TotpRight";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Begin {
    current_password: Option<Secret>,
}

/// A new key, which the answer shows this once. It is in force when `confirm` got a code of it.
pub(super) async fn begin(call: &Call, address: Option<IpAddr>) -> Result<Answer, ApiError> {
    let asked: Begin = reply::body(call)?;
    let owner = tokens::account(call)?;
    refuse_if_on(&owner)?;
    let given = asked.current_password.filter(|given| !given.reveal().is_empty());
    let given = given.ok_or_else(|| invalid("MissingRequired", "currentPassword is required"))?;
    // Whoever found a session open must not shut its owner out.
    verify(call, &owner.user.name, given, address).await?;
    let key = TotpKey::generate().map_err(ApiError::internal)?;
    write(call, &owner, |stored| {
        second_factor::offer(stored, &key, Timestamp::now());
        Ok(())
    })
    .await?;
    let url = key.url(ISSUER, &format!("{}@{}", owner.user.name, host(call)));
    let qr = totp::qr(&url).map_err(ApiError::internal)?;
    let body = json!({
        "type": "totpEnrolment", "secret": key.base32().reveal(), "otpauthUrl": url.reveal(), "otpauthQr": qr,
    });
    Ok(answer::json(200, &body))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WithCode {
    totp: Option<Secret>,
}

fn code(call: &Call) -> Result<Secret, ApiError> {
    let asked: WithCode = reply::body(call)?;
    let code = asked.totp.filter(|code| !code.reveal().trim().is_empty());
    code.ok_or_else(|| invalid("MissingRequired", "totp is required: the code that the authenticator app shows"))
}

/// The first code: from now on one is needed to log in. The recovery codes are shown this once.
pub(super) async fn confirm(call: &Call) -> Result<Answer, ApiError> {
    let code = code(call)?;
    let owner = tokens::account(call)?;
    refuse_if_on(&owner)?;
    let now = Timestamp::now();
    let step = |stored: &Value| second_factor::offered(stored, code.reveal(), now).map_err(unproven);
    // Before so many hashes are made.
    check_offered(call, &owner, code.reveal(), now).await?;
    let codes = call.server.auth.authenticator.hashing().run(totp::recovery_codes).await?;
    let codes = codes.map_err(ApiError::internal)?;
    write(call, &owner, |stored| {
        second_factor::enable(stored, step(stored)?, &codes);
        // They were opened with a password alone, maybe by somebody else.
        validity::end_sessions(stored, tokens::current_token(call));
        Ok(())
    })
    .await?;
    tokens::end_sessions(call, &owner.user.uid, tokens::current(call)).await?;
    tracing::info!(user = owner.user.name, "the user has a second factor now");
    let codes: Vec<&str> = codes.iter().map(|(code, _)| code.reveal()).collect();
    Ok(answer::json(200, &json!({"type": "totpEnrolment", "recoveryCodes": codes})))
}

/// Whether it is a code of the key that was offered. A wrong one is counted in the write that looks at it: however many come at
/// once, no more of them are tried than one after the other.
async fn check_offered(call: &Call, owner: &LocalUser, code: &str, now: Timestamp) -> Result<(), ApiError> {
    let counted = write(call, owner, |stored| match second_factor::offered(stored, code, now) {
        Ok(_) => Err(ApiError::new(409, RIGHT, "the code is right")),
        Err(Unproven::WrongCode) => {
            second_factor::miss(stored);
            Ok(())
        }
        Err(why) => Err(unproven(why)),
    });
    match counted.await {
        Ok(()) => Err(unproven(Unproven::WrongCode)),
        Err(error) if error.reason() == RIGHT => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes a code, or a recovery code.
pub(super) async fn disable(call: &Call, address: Option<IpAddr>) -> Result<Answer, ApiError> {
    let code = code(call)?;
    let owner = tokens::account(call)?;
    if owner.second_factor.is_none() {
        return Err(invalid("InvalidAction", "there is no second factor to take off"));
    }
    let credentials = Credentials { name: owner.user.name.clone(), password: None, code: Code::Sent(Some(code)) };
    let proven = check(call, credentials, address).await.map_err(as_field)?;
    let Some(used) = proven.used else {
        return Err(ApiError::new(409, "Conflict", "the second factor was taken off meanwhile"));
    };
    spend_and(call, &owner.user.name, &used, address, second_factor::remove).await.map_err(as_field)?;
    tracing::info!(user = owner.user.name, "the user has no second factor any more");
    users::get(call, "me")
}

/// Uses up a code that was right. Of two who show the same, one is told that it was wrong.
pub(super) async fn spend(call: &Call, name: &str, used: &Used, address: Option<IpAddr>) -> Result<(), ApiError> {
    spend_and(call, name, used, address, |_| ()).await
}

async fn spend_and(
    call: &Call,
    name: &str,
    used: &Used,
    address: Option<IpAddr>,
    then: fn(&mut Value),
) -> Result<(), ApiError> {
    let target = tokens::target(call, &users::secret_name(name))?;
    let spent = change(&Call::internal(&call.server, &target), &target, &tokens::options(), |stored| {
        let mut stored = stored.clone();
        if !second_factor::spend(&mut stored, used) {
            return Err(ApiError::new(409, USED, "the code was used before"));
        }
        then(&mut stored);
        Ok(Candidate::Untracked(stored))
    })
    .await;
    match spent {
        Ok(_) => {
            call.server.auth.authenticator.code_was_new();
            call.server.cache.fresh().await.map(drop)
        }
        // Or its owner is gone.
        Err(error) if error.reason() == USED || error.code() == 404 => {
            let error = call.server.auth.authenticator.code_was_used(name, address);
            Err(error.refusal().unwrap_or_else(ApiError::unauthorized))
        }
        Err(error) => Err(error),
    }
}

fn refuse_if_on(owner: &LocalUser) -> Result<(), ApiError> {
    let why = "there is a second factor already; take it off first";
    if owner.second_factor.is_some() { Err(invalid("InvalidAction", why)) } else { Ok(()) }
}

fn unproven(why: Unproven) -> ApiError {
    match why {
        Unproven::NothingOffered => invalid(
            "InvalidAction",
            "there is nothing to confirm: it took longer than a quarter of an hour, or too many codes were wrong; begin anew",
        ),
        Unproven::WrongCode => invalid("TotpInvalid", "the code is wrong or too old; is the clock of the phone right?"),
    }
}

/// The caller is in already: not the session is wrong, but what was typed.
fn as_field(error: ApiError) -> ApiError {
    match error.code() {
        401 => invalid("TotpInvalid", "the code is wrong, too old, or was used before"),
        _ => error,
    }
}

/// Changes the Secret of the user.
pub(super) async fn write(
    call: &Call,
    owner: &LocalUser,
    edit: impl Fn(&mut Value) -> Result<(), ApiError> + Send + Sync,
) -> Result<(), ApiError> {
    let target = tokens::target(call, &users::secret_name(&owner.user.name))?;
    change(&Call::internal(&call.server, &target), &target, &tokens::options(), |stored| {
        let mut stored = stored.clone();
        edit(&mut stored)?;
        Ok(Candidate::Untracked(stored))
    })
    .await?;
    call.server.cache.fresh().await.map(drop)
}

/// The server's name as its user knows it.
fn host(call: &Call) -> String {
    let base = reply::base(call);
    let authority = base.strip_prefix("https://").and_then(|authority| authority.parse::<Authority>().ok());
    authority.map_or_else(|| base.clone(), |authority| authority.host().to_owned())
}

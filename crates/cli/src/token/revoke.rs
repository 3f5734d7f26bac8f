//! `croft token list` and `croft token revoke`.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::{Engine, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{NAMESPACE, SECRET_TYPE, split_account};
use crate::api::DataDir;
use crate::client::{Client, Kind, SECRETS, is_not_found};
use crate::{output, revoked};

/// Tokens of the account from before the moment that it says are refused.
const VALID_FROM: &str = "croft.io/tokens-valid-from";
const ACCOUNTS: Kind = Kind { prefix: "/api/v1", plural: "serviceaccounts" };

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// Only those of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// A token: its id as "croft token list" shows it, the JTI of a service account's or another issuer's, or the token itself
    #[arg(value_name = "TOKEN", group = "which")]
    token: Option<String>,
    /// All tokens of this user
    #[arg(long, value_name = "NAME", group = "which")]
    user: Option<String>,
    /// All tokens that this service account has been given so far
    #[arg(long, value_name = "NAMESPACE/NAME", group = "which")]
    service_account: Option<String>,
}

pub(super) async fn list(args: ListArgs) -> anyhow::Result<String> {
    let client = args.data_dir.client().await?;
    let tokens = all(&client, args.user.as_deref()).await?;
    let row = |secret: &Value| {
        let text = |key: &str| text(secret, key);
        let made = secret["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        let kind = if text("kind").is_empty() { "token".to_owned() } else { text("kind") };
        vec![text("id"), text("user"), kind, made, text("expires"), text("description")]
    };
    Ok(output::rows(&["id", "user", "kind", "created", "expires", "description"], tokens.iter().map(row)))
}

async fn all(client: &Client, user: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let path = format!("{}?fieldSelector=type%3D{}", SECRETS.all(NAMESPACE), SECRET_TYPE.replace('/', "%2F"));
    let mut list = client.get(&path).await.context("cannot list tokens")?;
    let mut tokens = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    tokens.retain(|secret| user.is_none_or(|user| text(secret, "user") == user));
    tokens.sort_by_key(|secret| (text(secret, "user"), text(secret, "id")));
    Ok(tokens)
}

fn text(secret: &Value, key: &str) -> String {
    let bytes = secret["data"][key].as_str().and_then(|value| BASE64_STANDARD.decode(value).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

pub(super) async fn revoke(args: RevokeArgs) -> anyhow::Result<String> {
    let named = args.token.as_deref().map(Named::parse).transpose()?;
    let account = args.service_account.as_deref().map(split_account).transpose()?;
    let client = args.data_dir.client().await?;
    if let Some(user) = &args.user {
        let tokens = all(&client, Some(user)).await?;
        for secret in &tokens {
            delete(&client, &text(secret, "id")).await?;
        }
        return Ok(format!("revoked {} tokens of {user}\n", tokens.len()));
    }
    if let Some((namespace, name)) = account {
        account_tokens(&client, namespace, name).await?;
        return Ok(format!("revoked all tokens of {namespace}/{name} from before now\n"));
    }
    match named {
        Some(Named::Opaque(id)) => {
            if !delete(&client, &id).await? {
                bail!("there is no token {id:?}; \"croft token list\" shows which there are");
            }
            Ok(format!("revoked {id}\n"))
        }
        Some(Named::Signed { id, end }) => {
            revoked::add(&client, &croft_pki::jws::revocation_key(&id), end).await?;
            Ok(format!("revoked JTI={id}\n"))
        }
        None => bail!("say which: a token, --user or --service-account"),
    }
}

/// Whether there was one.
async fn delete(client: &Client, id: &str) -> anyhow::Result<bool> {
    match client.delete(&SECRETS.one(NAMESPACE, &format!("token-{id}"))?).await {
        Ok(_) => Ok(true),
        Err(err) if is_not_found(&err) => Ok(false),
        Err(err) => Err(err.context(format!("cannot revoke {id}"))),
    }
}

/// Tokens say in whole seconds when they were made: those of this second go as well, and the next are good.
async fn account_tokens(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let since = Timestamp::from_second(Timestamp::now().as_second() + 1)?;
    let patch = json!({"metadata": {"annotations": {VALID_FROM: format!("{since:.0}")}}});
    client.merge(&ACCOUNTS.one(namespace, name)?, &patch).await.context("cannot revoke")?;
    let left = since.duration_since(Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// A Secret stands for it.
    Opaque(String),
    /// A service account's or another issuer's, which is only signed.
    Signed { id: String, end: Option<Timestamp> },
}

impl Named {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let is_id = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        // As it is shown: issuers choose ids as they like.
        if let Some(id) = text.strip_prefix("JTI=").filter(|id| !id.is_empty()) {
            return Ok(Self::Signed { id: id.to_owned(), end: None });
        }
        // As it is written: the server compares exactly.
        if text.len() == 36 && text.contains('-') {
            return Ok(Self::Signed { id: text.to_owned(), end: None });
        }
        if let Some(claims) = text.split('.').nth(1) {
            let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok();
            let claims: Option<Value> = claims.and_then(|claims| serde_json::from_slice(&claims).ok());
            let claims = claims.context("this is no token that somebody signed")?;
            let id = claims["jti"]
                .as_str()
                .context("this token has no id; delete the Secret that it is in, or have its issuer end it")?
                .to_owned();
            return Ok(Self::Signed {
                id,
                end: claims["exp"].as_i64().and_then(|end| Timestamp::from_second(end).ok()),
            });
        }
        let id = text.trim_start_matches("token-").trim_start_matches("croft-");
        let id = id.split_once(':').map_or(id, |(id, _)| id);
        if !is_id(id) {
            bail!("this is not a token, nor the id of one");
        }
        Ok(Self::Opaque(id.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_named_in_several_ways() {
        let jti = "0a1b2c3d-0000-4000-8000-000000000000";
        let claims = BASE64_URL_SAFE_NO_PAD.encode(json!({"jti": jti, "exp": 1_000}).to_string());
        let signed = |end| Named::Signed { id: jti.to_owned(), end };
        for (text, expected) in [
            ("abcdefghij".to_owned(), Named::Opaque("abcdefghij".to_owned())),
            ("token-abcde".to_owned(), Named::Opaque("abcde".to_owned())),
            ("croft-abcdefghij:the-secret-part".to_owned(), Named::Opaque("abcdefghij".to_owned())),
            (format!("JTI={jti}"), signed(None)),
            (jti.to_owned(), signed(None)),
            (jti.to_uppercase(), Named::Signed { id: jti.to_uppercase(), end: None }),
            ("JTI=onrtac:A".to_owned(), Named::Signed { id: "onrtac:A".to_owned(), end: None }),
            (format!("e30.{claims}.x"), signed(Timestamp::from_second(1_000).ok())),
        ] {
            assert_eq!(Named::parse(&text).unwrap(), expected, "{text}");
        }
        for text in ["", "No Token", "a.b.c"] {
            assert!(Named::parse(text).is_err(), "{text}");
        }
    }
}

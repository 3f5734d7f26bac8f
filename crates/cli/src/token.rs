//! `croft token`: bearer tokens for users and service accounts; [`revoke`] ends them.

mod revoke;

use std::time::Duration;

use anyhow::{Context, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::{Args, Subcommand};
use croft_pki::{BearerToken, Kubeconfig, Secret};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Failure;
use crate::api::{Api, DataDir, segment};
use crate::lifetime;

/// What marks a Secret as a token; the server looks for it.
const SECRET_TYPE: &str = "croft.io/token";
const NAMESPACE: &str = "kube-system";

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it; it cannot be shown again
    Create(CreateArgs),
    /// List the tokens of users
    List(revoke::ListArgs),
    /// End tokens at once
    #[command(after_help = "What is open with them, such as watches and consoles, ends within seconds.")]
    Revoke(revoke::RevokeArgs),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("who").required(true))]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// The user whom the token stands for
    #[arg(long, env = "CROFT_USER", value_name = "NAME", group = "who")]
    user: Option<String>,
    /// The service account whom the token stands for
    #[arg(long, env = "CROFT_SERVICE_ACCOUNT", value_name = "NAMESPACE/NAME", group = "who")]
    service_account: Option<String>,
    /// A group of the user; may be repeated
    #[arg(long, env = "CROFT_GROUP", value_name = "NAME", value_delimiter = ',', conflicts_with = "service_account")]
    group: Vec<String>,
    /// How long the token lasts, 0s for ever [default: 30d for users, 1h for service accounts]
    #[arg(long, env = "CROFT_DURATION", value_name = "DURATION", value_parser = lifetime::parse)]
    duration: Option<Duration>,
}

pub(crate) async fn run(command: TokenCommand) -> Result<String, Failure> {
    let args = match command {
        TokenCommand::Create(args) => args,
        TokenCommand::List(args) => return Ok(revoke::list(args).await?),
        TokenCommand::Revoke(args) => return Ok(revoke::revoke(args).await?),
    };
    let token = match (&args.user, &args.service_account) {
        (Some(user), _) => {
            let order = UserToken::new(user, &args.group, args.duration).map_err(Failure::usage)?;
            order.create(&args.data_dir.kubeconfig()?).await?
        }
        (None, Some(account)) => {
            let order = AccountToken::new(account, args.duration).map_err(Failure::usage)?;
            order.create(&args.data_dir.kubeconfig()?).await?
        }
        (None, None) => return Err(Failure::usage(anyhow::anyhow!("say for whom: --user or --service-account"))),
    };
    Ok(format!("{}\n", token.reveal()))
}

/// A token for a user that makes sense, and has yet to be made.
pub(crate) struct UserToken<'a> {
    user: &'a str,
    groups: &'a [String],
    expires: Option<Timestamp>,
}

impl<'a> UserToken<'a> {
    pub(crate) fn new(user: &'a str, groups: &'a [String], lifetime: Option<Duration>) -> anyhow::Result<Self> {
        const DEFAULT: Duration = Duration::from_hours(30 * 24);
        if user.is_empty() || user.starts_with("system:") {
            bail!("{user:?} cannot be the user of a token; for a service account use --service-account");
        }
        // The groups are kept as one text with commas between them.
        if let Some(group) = groups.iter().find(|group| group.is_empty() || group.contains(',')) {
            bail!("{group:?} cannot be a group of a token");
        }
        let expires = match lifetime.unwrap_or(DEFAULT) {
            Duration::ZERO => None,
            lifetime => Some(Timestamp::now().checked_add(lifetime).context("the duration is too long")?),
        };
        Ok(Self { user, groups, expires })
    }

    /// Leaves a Secret with the token's hash for the server to find.
    pub(crate) async fn create(&self, admin: &Kubeconfig) -> anyhow::Result<Secret> {
        let token = BearerToken::generate()?;
        let api = Api::connect(admin).await?;
        api.post(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &self.secret(&token)).await?;
        Ok(token.reveal())
    }

    fn secret(&self, token: &BearerToken) -> Value {
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let mut data = json!({
            "id": encode(token.id()),
            "hash": encode(&token.hash()),
            "user": encode(self.user),
            "groups": encode(&self.groups.join(",")),
        });
        if let Some(expires) = self.expires {
            data["expires"] = encode(&format!("{expires:.0}")).into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": format!("token-{}", token.id()), "namespace": NAMESPACE },
            "type": SECRET_TYPE,
            "data": data,
        })
    }
}

/// A token for a service account that makes sense, and has yet to be asked for.
struct AccountToken<'a> {
    namespace: &'a str,
    name: &'a str,
    lifetime: Option<Duration>,
}

impl<'a> AccountToken<'a> {
    fn new(account: &'a str, lifetime: Option<Duration>) -> anyhow::Result<Self> {
        let (namespace, name) = split_account(account)?;
        if lifetime == Some(Duration::ZERO) {
            bail!(
                "tokens of service accounts expire; for one that does not, create a Secret of type kubernetes.io/service-account-token"
            );
        }
        Ok(Self { namespace, name, lifetime })
    }

    async fn create(&self, admin: &Kubeconfig) -> anyhow::Result<Secret> {
        let mut request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        if let Some(lifetime) = self.lifetime {
            request["spec"]["expirationSeconds"] = lifetime.as_secs().into();
        }
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", self.namespace, self.name);
        let answer = Api::connect(admin).await?.post(&path, &request).await?;
        let token = answer["status"]["token"].as_str().context("the server's answer has no token")?;
        Ok(Secret::new(token))
    }
}

/// `namespace/name`, or the account's user name as Kubernetes writes it.
fn split_account(account: &str) -> anyhow::Result<(&str, &str)> {
    let split = match account.strip_prefix("system:serviceaccount:") {
        Some(rest) => rest.split_once(':'),
        None => account.split_once('/'),
    };
    let (namespace, name) =
        split.with_context(|| format!("{account:?} does not name a service account; write NAMESPACE/NAME"))?;
    Ok((segment(namespace)?, segment(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_holds_the_hash_and_not_the_token() {
        let token = BearerToken::generate().unwrap();
        let expires: Timestamp = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let groups = ["ops".to_owned(), "system:masters".to_owned()];
        let order = UserToken { user: "jane", groups: &groups, expires: Some(expires) };
        let secret = order.secret(&token);
        let decoded = |key: &str| {
            String::from_utf8(BASE64_STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
        };
        assert_eq!(secret["metadata"]["name"], format!("token-{}", token.id()));
        assert_eq!(secret["type"], "croft.io/token");
        assert_eq!(decoded("user"), "jane");
        assert_eq!(decoded("groups"), "ops,system:masters");
        assert_eq!(decoded("expires"), "2026-01-02T03:04:05Z");
        assert!(token.matches(&decoded("hash")));
        assert!(!secret.to_string().contains(&BASE64_STANDARD.encode(token.reveal().reveal())));
        let for_ever = UserToken::new("jane", &[], Some(Duration::ZERO)).unwrap();
        assert!(for_ever.secret(&token)["data"].get("expires").is_none());
    }

    #[test]
    fn impossible_users_and_groups_are_refused() {
        for (user, group) in [("", "ops"), ("system:admin", "ops"), ("jane", ""), ("jane", "a,b")] {
            assert!(UserToken::new(user, &[group.to_owned()], None).is_err(), "{user} {group}");
        }
    }

    #[test]
    fn service_accounts_are_named_in_two_ways() {
        for (text, expected) in [
            ("apps/builder", Some(("apps", "builder"))),
            ("system:serviceaccount:apps:builder", Some(("apps", "builder"))),
            ("builder", None),
            ("apps/", None),
            ("apps/../secrets", None),
            ("apps/a?b", None),
        ] {
            assert_eq!(split_account(text).ok(), expected, "{text}");
        }
    }
}

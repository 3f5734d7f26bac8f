//! `croft user`: the local users, who log in with a name and a password.

mod totp;

use anyhow::Context;
use clap::{Args, Subcommand};
use croft_pki::client_cert::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::DataDir;
use crate::client::{SECRETS, is_not_found};
use crate::{Failure, output};

const NAMESPACE: &str = "kube-system";
const LOCKOUTS: &str = "login-lockouts";
const USERS: &str = "/v3/users";

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List the local users, and which of them are locked
    List {
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// Let a user log in again who is locked after too many wrong passwords
    Unlock(UnlockArgs),
    /// The second factor of local users: a code of an authenticator app
    #[command(subcommand)]
    Totp(totp::TotpCommand),
}

#[derive(Debug, Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// The user
    name: String,
}

pub(crate) async fn run(command: UserCommand) -> Result<String, Failure> {
    match command {
        UserCommand::List { data_dir } => Ok(list(&data_dir).await?),
        UserCommand::Unlock(args) => Ok(unlock(&args).await?),
        UserCommand::Totp(command) => totp::run(command).await,
    }
}

async fn list(data_dir: &DataDir) -> anyhow::Result<String> {
    let users = data_dir.client().await?.get(USERS).await.context("cannot list the users")?;
    let row = |user: &Value| {
        let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
        let totp = if user["totpEnabled"] == true { "yes" } else { "" };
        vec![text("username"), text("created"), text("lockedUntil"), totp.to_owned()]
    };
    let users: Vec<Value> = users["data"].as_array().cloned().unwrap_or_default();
    Ok(output::rows(&["name", "created", "locked until", "second factor"], users.iter().map(row)))
}

async fn unlock(args: &UnlockArgs) -> anyhow::Result<String> {
    let client = args.data_dir.client().await?;
    let (path, key) = (SECRETS.one(NAMESPACE, LOCKOUTS)?, key(&args.name));
    let secret = client.find(&path).await?.unwrap_or_default();
    if secret["data"].get(&key).is_none() {
        return Ok(format!("{} was not locked\n", args.name));
    }
    match client.merge(&path, &json!({"data": {key: null}})).await {
        Err(err) if !is_not_found(&err) => Err(err.context("cannot unlock")),
        _ => Ok(format!("{} can log in again\n", args.name)),
    }
}

/// As the server names it there: nobody else is to read which names were tried.
fn key(name: &str) -> String {
    hex(&Sha256::digest(name.as_bytes())[..20])
}

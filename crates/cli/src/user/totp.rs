//! `croft user totp`: the second factor of the user whose kubeconfig it is, and an administrator's way to take off another's.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use croft_pki::Secret;
use serde_json::{Map, Value, json};

use super::{NAMESPACE, USERS};
use crate::api::segment;
use crate::client::{Client, ClientArgs, SECRETS};
use crate::{Failure, print, typed};

/// What the server keeps of it in the user's Secret.
const PREFIX: &str = "totp-";
/// Around a QR code, so that it is found.
const MARGIN: usize = 4;

#[derive(Debug, Subcommand)]
pub(crate) enum TotpCommand {
    /// Have an authenticator app show the codes that you log in with from now on
    Enable(EnableArgs),
    /// Log in with the password alone again; takes a code
    Disable(DisableArgs),
    /// Whether a user has a second factor, and how many recovery codes are left
    Status {
        #[command(flatten)]
        client: ClientArgs,
        /// The user [default: you]
        name: Option<String>,
    },
    /// Take off the second factor of a user who has lost it; takes the rights of an administrator
    Reset {
        #[command(flatten)]
        client: ClientArgs,
        /// The user
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EnableArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// A file with your password; otherwise it is asked for
    #[arg(long, env = "CROFT_PASSWORD_FILE", value_name = "FILE")]
    password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The code of the authenticator app, or a recovery code; otherwise it is asked for
    #[arg(long, env = "CROFT_TOTP", value_name = "CODE", hide_env_values = true)]
    totp: Option<String>,
}

pub(crate) async fn run(command: TotpCommand) -> Result<String, Failure> {
    match command {
        TotpCommand::Enable(args) => enable(args).await,
        TotpCommand::Disable(args) => Ok(disable(args).await?),
        TotpCommand::Status { client, name } => Ok(status(&client.connect().await?, name.as_deref()).await?),
        TotpCommand::Reset { client, name } => Ok(reset(&client.connect().await?, &name).await?),
    }
}

async fn enable(args: EnableArgs) -> Result<String, Failure> {
    let client = args.client.connect().await?;
    let name = who(&client).await?;
    let password = password(args.password_file, &name)?;
    let begun = act(&client, "enabletotp", &json!({"currentPassword": password.reveal()})).await?;
    let secret = begun["secret"].as_str().context("the server's answer has no secret")?;
    let qr: Vec<&str> = begun["otpauthQr"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let drawn = draw(&qr, std::io::stdout().is_terminal());
    print(&format!("{drawn}\nHave an authenticator app read the picture, or type in the key {secret}\n\n"))?;
    let codes = loop {
        let code = typed::shown("The code that it shows: ")?;
        if code.reveal().trim().is_empty() {
            return Err(anyhow!("nothing has changed: the second factor is on once a code was shown").into());
        }
        match act(&client, "confirmtotp", &json!({"totp": code.reveal()})).await {
            Err(err) if is_wrong_code(&err) && std::io::stdin().is_terminal() => eprintln!("{err}"),
            other => break other?,
        }
    };
    let codes = codes["recoveryCodes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut text = format!(
        "{name} logs in with a code from now on. Keep these recovery codes in a safe place: each is good once, when the app is lost.\n\n"
    );
    for code in codes {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {code}");
    }
    Ok(text)
}

async fn disable(args: DisableArgs) -> anyhow::Result<String> {
    let client = args.client.connect().await?;
    let name = who(&client).await?;
    let code = match args.totp {
        Some(code) => Secret::new(code),
        None => typed::shown("Code of the authenticator app, or a recovery code: ")?,
    };
    act(&client, "disabletotp", &json!({"totp": code.reveal()})).await?;
    Ok(format!("{name} logs in with the password alone again\n"))
}

async fn status(client: &Client, name: Option<&str>) -> anyhow::Result<String> {
    let path = match name {
        Some(name) => format!("{USERS}/user-{}", segment(name)?),
        None => format!("{USERS}/me"),
    };
    let user = client.get(&path).await?;
    let name = user["username"].as_str().unwrap_or_default();
    if user["totpEnabled"] != true {
        return Ok(format!("{name} has no second factor\n"));
    }
    let left = user["recoveryCodesLeft"].as_u64().unwrap_or_default();
    Ok(format!("{name} has a second factor, and {left} recovery codes left\n"))
}

async fn reset(client: &Client, name: &str) -> anyhow::Result<String> {
    let path = SECRETS.one(NAMESPACE, &format!("user-{}", segment(name)?))?;
    let secret = client.find(&path).await?.with_context(|| format!("there is no local user {name}"))?;
    let kept = secret["data"].as_object().into_iter().flatten().filter(|(key, _)| key.starts_with(PREFIX));
    let removed: Map<String, Value> = kept.map(|(key, _)| (key.clone(), Value::Null)).collect();
    if removed.is_empty() {
        return Ok(format!("{name} has no second factor\n"));
    }
    client.merge(&path, &json!({"data": removed})).await.context("cannot take the second factor off")?;
    Ok(format!("{name} logs in with the password alone again\n"))
}

async fn act(client: &Client, action: &str, body: &Value) -> anyhow::Result<Value> {
    client.create(&format!("{USERS}?action={action}"), body).await
}

fn is_wrong_code(err: &anyhow::Error) -> bool {
    err.downcast_ref::<crate::client::Refusal>().is_some_and(|refusal| refusal.reason == "TotpInvalid")
}

async fn who(client: &Client) -> anyhow::Result<String> {
    let me = client.get(&format!("{USERS}/me")).await?;
    Ok(me["username"].as_str().context("the server does not say who you are")?.to_owned())
}

fn password(file: Option<PathBuf>, name: &str) -> anyhow::Result<Secret> {
    if let Some(file) = file {
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        return Ok(Secret::new(text.trim_end_matches(['\r', '\n'])));
    }
    match typed::hidden(&format!("Password of {name}: "))? {
        Some(password) => Ok(password),
        None => bail!("there is no terminal to ask for the password of {name}; say --password-file"),
    }
}

/// Two rows of squares in a line of text: dark on light, whatever the colours of the terminal are.
fn draw(rows: &[&str], is_coloured: bool) -> String {
    let width = rows.len() + 2 * MARGIN;
    let is_dark = |x: usize, y: usize| {
        let inside = y.checked_sub(MARGIN).zip(x.checked_sub(MARGIN));
        inside.and_then(|(y, x)| rows.get(y)?.as_bytes().get(x)).is_some_and(|square| *square == b'1')
    };
    let (begin, end) = if is_coloured { ("\x1b[38;5;16;48;5;231m", "\x1b[0m") } else { ("", "") };
    let mut text = String::new();
    for y in (0..width).step_by(2) {
        text.push_str(begin);
        text.extend((0..width).map(|x| match (is_dark(x, y), is_dark(x, y + 1)) {
            (true, true) => '█',
            (true, false) => '▀',
            (false, true) => '▄',
            (false, false) => ' ',
        }));
        text.push_str(end);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_drawn_two_in_a_character() {
        let drawn = draw(&["110", "101", "011"], false);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 6);
        assert!(lines.iter().all(|line| line.chars().count() == 11));
        assert_eq!((lines[2], lines[3]), ("    █▀▄    ", "     ▀▀    "));
        assert!(draw(&["1"], true).lines().all(|line| line.starts_with("\x1b[") && line.ends_with("\x1b[0m")));
    }
}

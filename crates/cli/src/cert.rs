//! `croft cert`: client certificates that are no longer to be used.

use std::path::Path;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use croft_pki::Kubeconfig;
use croft_pki::client_cert::describe;
use croft_pki::kubeconfig::Credentials;
use jiff::Timestamp;

use crate::api::DataDir;
use crate::{Failure, output, revoked};

#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Refuse a client certificate from now on; what it has open ends within seconds
    #[command(
        after_help = "What to revoke is a file with the certificate, a kubeconfig that has one, its SHA-256 fingerprint \
        (\"kubectl auth whoami\" shows it), or its serial number in hexadecimal."
    )]
    Revoke(RevokeArgs),
    /// List what was revoked
    List {
        #[command(flatten)]
        data_dir: DataDir,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// The certificate: a file, a fingerprint or a serial number
    #[arg(value_name = "CERTIFICATE")]
    what: String,
}

pub(crate) async fn run(command: CertCommand) -> Result<String, Failure> {
    match command {
        CertCommand::Revoke(args) => {
            let (key, until) = find(&args.what).map_err(Failure::usage)?;
            revoked::add(&args.data_dir.client().await?, &key, until).await?;
            Ok(format!("revoked {}\n", told(&key)))
        }
        CertCommand::List { data_dir } => {
            let all = revoked::all(&data_dir.client().await?).await?;
            let until = |until: Option<Timestamp>| until.map(|until| format!("{until:.0}")).unwrap_or_default();
            Ok(output::rows(&["credential", "ends"], all.into_iter().map(|(key, end)| vec![told(&key), until(end)])))
        }
    }
}

/// As `kubectl auth whoami` shows it, where it does.
fn told(key: &str) -> String {
    for (prefix, shown) in [("x509-sha256-", "X509SHA256="), ("x509-serial-", "serial "), ("jti-", "JTI=")] {
        if let Some(rest) = key.strip_prefix(prefix) {
            return format!("{shown}{rest}");
        }
    }
    key.to_owned()
}

/// The key of the list, and when the certificate ends if that is known.
fn find(what: &str) -> anyhow::Result<(String, Option<Timestamp>)> {
    let path = Path::new(what);
    if path.is_file() {
        let (marks, _, end) = describe(&pem(path)?).with_context(|| format!("{what} has no certificate"))?;
        return Ok((format!("x509-sha256-{}", marks.fingerprint), Some(end)));
    }
    let digits: String = what.trim_start_matches("X509SHA256=").chars().filter(|c| *c != ':').collect();
    let digits = digits.to_ascii_lowercase();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        bail!("{what:?} is neither a file nor a fingerprint nor a serial number in hexadecimal");
    }
    match digits.len() {
        64 => Ok((format!("x509-sha256-{digits}"), None)),
        // The longest that a serial number may be is 20 bytes.
        ..=40 => Ok((format!("x509-serial-{}", digits.trim_start_matches('0')), None)),
        _ => bail!("{what:?} is too long for a serial number, and no SHA-256 fingerprint"),
    }
}

fn pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if text.starts_with(b"-----BEGIN") {
        return Ok(text);
    }
    match Kubeconfig::read(path)?.map(|kubeconfig| kubeconfig.credentials) {
        Some(Credentials::Certificate { cert_pem, .. }) => Ok(cert_pem.into_bytes()),
        _ => bail!("{} has no client certificate in it", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_named_in_several_ways() {
        let print = "ab".repeat(32);
        for (what, expected) in [
            (print.clone(), Some(format!("x509-sha256-{print}"))),
            (format!("X509SHA256={print}"), Some(format!("x509-sha256-{print}"))),
            ("00:0A:1b".to_owned(), Some("x509-serial-a1b".to_owned())),
            ("jane".to_owned(), None),
            (String::new(), None),
            ("ab".repeat(25), None),
        ] {
            assert_eq!(find(&what).ok().map(|(key, _)| key), expected, "{what}");
        }
    }
}

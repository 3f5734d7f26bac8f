//! `croft credential`: logs a local user in for kubectl and its kin, as client-go's exec plugins do.
//!
//! They run it when they need a credential, and tell it in `KUBERNETES_EXEC_INFO` which cluster it is for. The token that the
//! server gives lasts for hours and is kept in a file that only its owner reads; the password is kept nowhere.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use croft_pki::Secret;
use croft_pki::client_cert::hex;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client::{Refusal, refusal};
use crate::{Failure, lifetime, typed};

const LOGIN: &str = "/v3-public/localProviders/local?action=login";
const VERSION: &str = "client.authentication.k8s.io/v1";
/// A token that ends sooner is not worth handing out.
const MARGIN: SignedDuration = SignedDuration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct CredentialArgs {
    /// The local user to log in
    #[arg(long, value_name = "NAME")]
    user: String,
    /// The server, where the caller does not tell it
    #[arg(long, value_name = "URL", requires = "ca_file")]
    server: Option<String>,
    /// The authority that signed the server's certificate
    #[arg(long, value_name = "FILE", requires = "server")]
    ca_file: Option<PathBuf>,
    /// A file with the password; otherwise it is asked for
    #[arg(long, env = "CROFT_PASSWORD_FILE", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The code of the authenticator app, or a recovery code, for those who have a second factor; otherwise it is asked for
    #[arg(long, env = "CROFT_TOTP", value_name = "CODE", hide_env_values = true)]
    totp: Option<String>,
    /// How long the token is to last
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = lifetime::parse)]
    duration: Duration,
    /// Where tokens are kept [default: $XDG_CACHE_HOME/croft or ~/.cache/croft]
    #[arg(long, env = "CROFT_CREDENTIAL_CACHE", value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// A cluster, as client-go tells it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
    tls_server_name: String,
}

pub(crate) async fn run(args: CredentialArgs) -> Result<String, Failure> {
    let cluster = cluster(&args).map_err(Failure::usage)?;
    let file = cache_file(&args, &cluster)?;
    if let Some(kept) = kept(&file, Timestamp::now()) {
        return Ok(format!("{kept}\n"));
    }
    let made = log_in(&args, &cluster).await?;
    keep(&file, &made)?;
    Ok(format!("{made}\n"))
}

fn cluster(args: &CredentialArgs) -> anyhow::Result<Cluster> {
    if let (Some(server), Some(file)) = (&args.server, &args.ca_file) {
        let pem = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let data = BASE64_STANDARD.encode(pem);
        return Ok(Cluster { server: server.clone(), certificate_authority_data: data, ..Cluster::default() });
    }
    let told = std::env::var("KUBERNETES_EXEC_INFO").unwrap_or_default();
    let told: Value = serde_json::from_str(&told).unwrap_or_default();
    let version = told["apiVersion"].as_str().unwrap_or_default();
    if version != VERSION {
        bail!(
            "kubectl runs this by itself, with {VERSION}; see \"croft kubeconfig --login\", or say --server and --ca-file"
        );
    }
    let cluster = serde_json::from_value(told["spec"]["cluster"].clone());
    let cluster: Cluster = cluster.context("the kubeconfig must say provideClusterInfo: true")?;
    if cluster.server.is_empty() || cluster.certificate_authority_data.is_empty() {
        bail!("the cluster of the kubeconfig must have a server and certificate-authority-data");
    }
    Ok(cluster)
}

async fn log_in(args: &CredentialArgs, cluster: &Cluster) -> anyhow::Result<Value> {
    let client = client(cluster)?;
    let password = password(args, &cluster.server)?;
    let given = args.totp.clone().map(Secret::new);
    let answer = match try_log_in(&client, args, cluster, &password, given.as_ref()).await {
        Err(err) if given.is_none() && err.downcast_ref::<Refusal>().is_some_and(needs_code) => {
            let code = code(args, &cluster.server)?;
            try_log_in(&client, args, cluster, &password, Some(&code)).await
        }
        other => other,
    };
    let answer = answer.map_err(|err| match err.downcast::<Refusal>() {
        Ok(refusal) => anyhow!("{} does not let {} in: {refusal}", cluster.server, args.user),
        Err(err) => err,
    })?;
    let token = answer["token"].as_str().context("the server's answer has no token")?;
    let mut status = json!({"token": token});
    if let Some(ends) = answer["expiresAt"].as_str().filter(|ends| !ends.is_empty()) {
        status["expirationTimestamp"] = json!(ends);
    }
    Ok(json!({"apiVersion": VERSION, "kind": "ExecCredential", "status": status}))
}

fn client(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    let mut config = kube::Config::new(cluster.server.parse().context("the server's address")?);
    let pem = BASE64_STANDARD.decode(&cluster.certificate_authority_data).context("certificate-authority-data")?;
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).map(|cert| cert.map(|c| c.to_vec())).collect();
    config.root_cert = Some(roots.context("certificate-authority-data")?);
    config.tls_server_name = Some(cluster.tls_server_name.clone()).filter(|name| !name.is_empty());
    config.connect_timeout = Some(Duration::from_secs(10));
    config.read_timeout = Some(Duration::from_secs(30));
    Ok(kube::Client::try_from(config)?)
}

/// What the server says to these; a refusal is a [`Refusal`].
async fn try_log_in(
    client: &kube::Client,
    args: &CredentialArgs,
    cluster: &Cluster,
    password: &Secret,
    code: Option<&Secret>,
) -> anyhow::Result<Value> {
    let ttl = u64::try_from(args.duration.as_millis()).context("--duration is too long")?;
    let mut body = json!({
        "username": args.user, "password": password.reveal(), "responseType": "token", "ttl": ttl,
        "description": "croft credential",
    });
    if let Some(code) = code {
        body["totp"] = json!(code.reveal());
    }
    let request = http::Request::post(LOGIN)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::USER_AGENT, concat!("croft/", env!("CARGO_PKG_VERSION")))
        .body(body.to_string().into_bytes())?;
    let answer = client.request_text(request).await.map_err(|err| refused(&err, cluster))?;
    serde_json::from_str(&answer).context("the server's answer is not JSON")
}

fn needs_code(refusal: &Refusal) -> bool {
    refusal.reason == "TotpRequired"
}

fn refused(err: &kube::Error, cluster: &Cluster) -> anyhow::Error {
    if let kube::Error::Api(status) = err {
        return refusal(status).into();
    }
    let mut innermost: &dyn std::error::Error = err;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    anyhow!("cannot talk to the server at {}: {innermost}", cluster.server)
}

fn password(args: &CredentialArgs, server: &str) -> anyhow::Result<Secret> {
    if let Some(file) = &args.password_file {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        return Ok(Secret::new(text.trim_end_matches(['\r', '\n'])));
    }
    let asked = typed::hidden(&format!("Password of {} at {server}: ", args.user))?;
    asked.with_context(|| format!("there is no terminal to ask for the password of {}; say --password-file", args.user))
}

fn code(args: &CredentialArgs, server: &str) -> anyhow::Result<Secret> {
    let asked = typed::hidden(&format!("Code of the authenticator app of {} for {server}: ", args.user))?;
    asked.with_context(|| {
        format!("{} has a second factor, and there is no terminal to ask for its code; say --totp", args.user)
    })
}

/// One file for each user of each cluster.
fn cache_file(args: &CredentialArgs, cluster: &Cluster) -> anyhow::Result<PathBuf> {
    let dir = if let Some(dir) = &args.cache_dir {
        dir.clone()
    } else {
        let cache = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        cache.or(home).context("there is no home directory; say --cache-dir")?.join("croft")
    };
    let of = format!("{}\n{}\n{}", cluster.server, cluster.certificate_authority_data, args.user);
    Ok(dir.join(format!("credential-{}.json", hex(&Sha256::digest(of)[..16]))))
}

/// What was kept, if it is good for a while yet. A file that others can read is not trusted.
fn kept(file: &Path, now: Timestamp) -> Option<Value> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    if mode & 0o077 != 0 {
        return None;
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
    let ends: Timestamp = kept["status"]["expirationTimestamp"].as_str()?.parse().ok()?;
    (ends.duration_since(now) > MARGIN && kept["status"]["token"].is_string()).then_some(kept)
}

fn keep(file: &Path, made: &Value) -> anyhow::Result<()> {
    let failed = || format!("cannot keep the token in {}", file.display());
    let dir = file.parent().context("a file has a directory")?;
    std::fs::create_dir_all(dir).with_context(failed)?;
    let half = file.with_extension(format!("{}.new", std::process::id()));
    let mut out = std::fs::OpenOptions::new();
    let mut out = out.write(true).create(true).truncate(true).mode(0o600).open(&half).with_context(failed)?;
    out.write_all(made.to_string().as_bytes()).with_context(failed)?;
    std::fs::rename(&half, file).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_token_is_used_until_shortly_before_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("deep/credential.json");
        let made = json!({"status": {"token": "t", "expirationTimestamp": "2026-01-01T12:00:00Z"}});
        keep(&file, &made).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let at = |time: &str| kept(&file, time.parse().unwrap());
        assert_eq!(at("2026-01-01T11:58:59Z"), Some(made));
        assert_eq!(at("2026-01-01T11:59:01Z"), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(at("2026-01-01T11:00:00Z"), None, "somebody else may have written it");
    }
}

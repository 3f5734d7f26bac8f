//! A real OpenID Connect provider over real TLS, and a person who logs in there. `make` keeps it in `target/oidc-provider`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use croft_testkit::{Answer, Authority, Call, Client, Process, Protocol, patience, promptly_within};
use http::Method;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// Where people come back to; nobody listens there.
const REDIRECT: &str = "http://127.0.0.1/callback";
const VERIFIER: &str = "a-verifier-of-at-least-forty-three-characters";
const FORM: &str = "application/x-www-form-urlencoded";

/// A running provider. Dropping it kills it.
#[derive(Debug)]
pub struct OidcProvider {
    pub issuer: String,
    pub ca_file: PathBuf,
    pub ca_pem: String,
    _process: Process,
    _dir: TempDir,
}

impl OidcProvider {
    pub async fn start() -> Result<Self> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests have a workspace")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let installed = workspace.join(target).join("oidc-provider");
        let node = installed.join("node");
        ensure!(node.exists(), "there is no {}: run scripts/oidc-provider {}", node.display(), installed.display());
        let dir = tempfile::Builder::new().prefix("croft-oidc-").tempdir()?;
        let authority = Authority::new("provider")?;
        let identity = authority.server()?;
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("ca.pem"), authority.cert_pem())?;
        std::fs::write(path("cert.pem"), &identity.cert_pem)?;
        std::fs::write(path("key.pem"), &identity.key_pem)?;
        let mut command = Command::new(node);
        command.arg(workspace.join("tests/oidc/provider.js")).arg(&installed);
        command.arg(path("cert.pem")).arg(path("key.pem")).arg(REDIRECT);
        let log = path("log");
        let mut process = Process::spawn("oidc-provider", command, &log)?;
        let issuer = promptly_within(patience(), async || {
            process.check_running()?;
            let text = std::fs::read_to_string(&log)?;
            let line = text.lines().find(|line| line.starts_with("https://"));
            line.map(str::to_owned).with_context(|| format!("the provider is not ready:\n{text}"))
        });
        let issuer = issuer.await?;
        Ok(Self { issuer, ca_file: path("ca.pem"), ca_pem: authority.cert_pem(), _process: process, _dir: dir })
    }

    /// Logs in as `user` for `client`, step by step as a browser goes, and gives the ID token.
    pub async fn log_in(&self, client: &str, user: &str) -> Result<String> {
        let mut browser = Browser {
            client: Client::trusting(&self.issuer, &self.ca_pem, Protocol::Http1)?,
            base: self.issuer.clone(),
            cookies: BTreeMap::new(),
        };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let redirect = REDIRECT.replace(':', "%3A").replace('/', "%2F");
        let start = format!(
            "/auth?client_id={client}&response_type=code&scope=openid%20email%20groups&state=s&redirect_uri={redirect}\
             &code_challenge={challenge}&code_challenge_method=S256"
        );
        let mut place = browser.next(Call::new(Method::GET, &start)).await?;
        for form in [format!("prompt=login&login={user}&password=any"), "prompt=consent".to_owned()] {
            let answer = browser.send(Call::new(Method::GET, &place)).await?;
            ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
            let resumed = browser.next(Call::new(Method::POST, &place).body(FORM, form)).await?;
            place = browser.next(Call::new(Method::GET, &resumed)).await?;
        }
        let query = place.split_once('?').context("a query")?.1;
        let code = query.split('&').find_map(|pair| pair.strip_prefix("code=")).context("a code")?;
        let form = format!(
            "grant_type=authorization_code&code={code}&client_id={client}&redirect_uri={redirect}&code_verifier={VERIFIER}"
        );
        let answer = browser.send(Call::new(Method::POST, "/token").body(FORM, form)).await?.ok()?;
        answer["id_token"].as_str().map(str::to_owned).context("an ID token")
    }
}

struct Browser {
    client: Client,
    base: String,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    async fn send(&mut self, call: Call) -> Result<Answer> {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let answer = self.client.send(call.header("cookie", &cookies.join("; "))).await?;
        for set in answer.headers.get_all("set-cookie") {
            let pair = set.to_str()?.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').context("a cookie")?;
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        Ok(answer)
    }

    /// Where the answer leads.
    async fn next(&mut self, call: Call) -> Result<String> {
        let answer = self.send(call).await?;
        let place = answer.header("location").with_context(|| format!("{}: {}", answer.status, answer.text()))?;
        Ok(place.strip_prefix(&self.base).unwrap_or(place).to_owned())
    }
}

//! The file of `--audit-webhook-config-file`: a kubeconfig that says where events are sent, whom to trust there, and who we are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use croft_meta::Chain;
use http::HeaderValue;
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Url};
use serde::Deserialize;

/// How long one attempt may take, and how long connecting.
const TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("it is no kubeconfig: {0}")]
    Yaml(String),
    #[error("{0}")]
    Field(String),
}

/// How many events are sent together, and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditBatch {
    pub max_size: usize,
    pub max_wait: Duration,
    pub buffer_size: usize,
    pub initial_backoff: Duration,
}

/// Where events are sent.
#[derive(Clone)]
pub struct AuditWebhook {
    pub(super) client: Client,
    pub(super) url: Url,
    authorization: Authorization,
    pub(super) batch: AuditBatch,
}

/// What is sent to show who we are.
#[derive(Clone)]
enum Authorization {
    None,
    Fixed(HeaderValue),
    /// In a file that somebody may write anew, as tokens do not last; and what was in it the last time.
    File(PathBuf, Arc<Mutex<HeaderValue>>),
}

impl fmt::Debug for AuditWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditWebhook")
            .field("host", &self.url.host_str())
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Document {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
    current_context: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

impl AuditWebhook {
    pub fn read(path: &Path, batch: AuditBatch) -> Result<Self, WebhookError> {
        let text = read(path)?;
        let document: Document =
            serde_saphyr::from_str(&text).map_err(|error| WebhookError::Yaml(error.to_string()))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let (cluster, user) = document.chosen()?;
        let url: Url = cluster.server.parse().map_err(|_| refused("server", "is no URL"))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(refused("server", "is neither https nor http"));
        }
        let builder = Client::builder().no_proxy().timeout(TIMEOUT).connect_timeout(CONNECT);
        // What is redirected may be asked for again without its body, and be answered as if it had been received.
        let builder = builder.redirect(Policy::none());
        let builder = user.identify(cluster.trust(builder, dir)?, dir)?;
        let client = builder.build().map_err(|error| WebhookError::Field(error.to_string()))?;
        Ok(Self { client, url, authorization: user.authorization(dir)?, batch })
    }

    /// The header for the next attempt. A file that cannot be read now leaves the token that it had.
    pub(super) async fn authorization(&self) -> Option<HeaderValue> {
        let (path, last) = match &self.authorization {
            Authorization::None => return None,
            Authorization::Fixed(value) => return Some(value.clone()),
            Authorization::File(path, last) => (path, last),
        };
        let read = tokio::fs::read_to_string(path).await;
        let read = read.map_err(|source| WebhookError::Read { path: path.clone(), source });
        match read.and_then(|token| bearer(&token)) {
            Ok(value) => *last.lock() = value,
            Err(error) => tracing::warn!(error = %Chain(&error), "the token of the audit webhook cannot be read again"),
        }
        Some(last.lock().clone())
    }
}

fn refused(field: &str, why: &str) -> WebhookError {
    WebhookError::Field(format!("{field} {why}"))
}

fn read(path: &Path) -> Result<String, WebhookError> {
    std::fs::read_to_string(path).map_err(|source| WebhookError::Read { path: path.to_owned(), source })
}

/// What stands in the file itself counts, then the file that it names, which is looked for beside it.
fn content(
    field: &str,
    data: Option<&String>,
    file: Option<&PathBuf>,
    dir: &Path,
) -> Result<Option<Vec<u8>>, WebhookError> {
    if let Some(data) = data {
        let decoded = STANDARD.decode(data.trim()).map_err(|_| refused(&format!("{field}-data"), "is no base64"))?;
        return Ok(Some(decoded));
    }
    file.map(|file| read(&dir.join(file)).map(String::into_bytes)).transpose()
}

impl Document {
    /// Of the current context; without one, the only cluster and the only user.
    fn chosen(&self) -> Result<(&Cluster, User), WebhookError> {
        let missing = |what: &str, name: &str| WebhookError::Field(format!("it has no {what} {name:?}"));
        let context = self.contexts.iter().find(|context| context.name == self.current_context);
        let (cluster, user) = match context {
            Some(context) => {
                let Context { cluster, user } = &context.context;
                let found = self.clusters.iter().find(|one| one.name == *cluster);
                let found = found.ok_or_else(|| missing("cluster", cluster))?;
                let who = self.users.iter().find(|one| one.name == *user);
                if who.is_none() && !user.is_empty() {
                    return Err(missing("user", user));
                }
                (found, who)
            }
            None if self.current_context.is_empty() && self.clusters.len() == 1 && self.users.len() <= 1 => {
                (&self.clusters[0], self.users.first())
            }
            None => return Err(missing("context", &self.current_context)),
        };
        let user = user.map(|user| user.user.clone()).unwrap_or_default();
        Ok((&cluster.cluster, user))
    }
}

impl Cluster {
    fn trust(&self, builder: ClientBuilder, dir: &Path) -> Result<ClientBuilder, WebhookError> {
        for (field, is_set) in
            [("tls-server-name", self.tls_server_name.is_some()), ("proxy-url", self.proxy_url.is_some())]
        {
            if is_set {
                return Err(refused(field, "is not supported here"));
            }
        }
        let file = self.certificate_authority.as_ref();
        let authority = content("certificate-authority", self.certificate_authority_data.as_ref(), file, dir)?;
        let builder = match authority {
            Some(pem) => {
                let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
                if certificates.is_empty() {
                    return Err(refused("certificate-authority", "has no certificate in it"));
                }
                builder.tls_certs_only(certificates)
            }
            None => builder,
        };
        Ok(builder.tls_danger_accept_invalid_certs(self.insecure_skip_tls_verify))
    }
}

impl User {
    fn identify(&self, builder: ClientBuilder, dir: &Path) -> Result<ClientBuilder, WebhookError> {
        for (field, is_set) in [("exec", self.exec.is_some()), ("auth-provider", self.auth_provider.is_some())] {
            if is_set {
                return Err(refused(field, "is not supported here: use a certificate, a token or a password"));
            }
        }
        let data = (self.client_certificate_data.as_ref(), self.client_key_data.as_ref());
        let certificate = content("client-certificate", data.0, self.client_certificate.as_ref(), dir)?;
        let key = content("client-key", data.1, self.client_key.as_ref(), dir)?;
        match (certificate, key) {
            (None, None) => Ok(builder),
            (Some(certificate), Some(key)) => {
                let identity = Identity::from_pem(&[certificate, b"\n".to_vec(), key].concat());
                let identity = identity.map_err(|_| refused("client-certificate", "and client-key cannot be used"))?;
                Ok(builder.identity(identity))
            }
            _ => Err(refused("client-certificate", "and client-key need each other")),
        }
    }

    fn authorization(&self, dir: &Path) -> Result<Authorization, WebhookError> {
        if let Some(file) = &self.token_file {
            let path = dir.join(file);
            let value = bearer(&read(&path)?)?;
            return Ok(Authorization::File(path, Arc::new(Mutex::new(value))));
        }
        if let Some(token) = &self.token {
            return bearer(token).map(Authorization::Fixed);
        }
        let Some(user) = &self.username else { return Ok(Authorization::None) };
        let password = self.password.as_deref().unwrap_or_default();
        header(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))).map(Authorization::Fixed)
    }
}

fn bearer(token: &str) -> Result<HeaderValue, WebhookError> {
    let token = token.trim();
    if token.is_empty() {
        return Err(refused("token", "is empty"));
    }
    header(&format!("Bearer {token}"))
}

fn header(text: &str) -> Result<HeaderValue, WebhookError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| refused("token", "has characters that cannot be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: AuditBatch = AuditBatch {
        max_size: 400,
        max_wait: Duration::from_secs(30),
        buffer_size: 10_000,
        initial_backoff: Duration::from_secs(10),
    };

    fn parse(text: &str) -> Result<AuditWebhook, WebhookError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("webhook.yaml");
        std::fs::write(&file, text).unwrap();
        std::fs::write(dir.path().join("token"), "from-a-file\n").unwrap();
        AuditWebhook::read(&file, BATCH)
    }

    #[tokio::test]
    async fn who_is_asked_and_who_asks_is_read() {
        let whole = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
            contexts: [{name: c, context: {cluster: a, user: u}}]\n\
            clusters: [{name: b, cluster: {server: 'https://b'}}, {name: a, cluster: {server: 'https://a/x'}}]\n\
            users: [{name: u, user: {token: s3cret}}]\n";
        let webhook = parse(whole).unwrap();
        assert_eq!(webhook.url.as_str(), "https://a/x");
        assert_eq!(webhook.authorization().await.unwrap(), "Bearer s3cret");
        assert!(!format!("{webhook:?}").contains("s3cret"));
        let short =
            "clusters: [{name: a, cluster: {server: 'https://a'}}]\nusers: [{name: u, user: {tokenFile: token}}]";
        assert_eq!(parse(short).unwrap().authorization().await.unwrap(), "Bearer from-a-file");
        let nobody = parse("clusters: [{name: a, cluster: {server: 'https://a'}}]").unwrap();
        assert!(nobody.authorization().await.is_none());
    }

    #[tokio::test]
    async fn a_token_is_the_one_that_its_file_has_now() {
        let dir = tempfile::tempdir().unwrap();
        let (file, token) = (dir.path().join("webhook.yaml"), dir.path().join("token"));
        let text =
            "clusters: [{name: a, cluster: {server: 'https://a'}}]\nusers: [{name: u, user: {tokenFile: token}}]";
        std::fs::write(&file, text).unwrap();
        std::fs::write(&token, "first\n").unwrap();
        let webhook = AuditWebhook::read(&file, BATCH).unwrap();
        for (written, expected) in [("second\n", "Bearer second"), ("\n", "Bearer second"), ("a\nb", "Bearer second")] {
            std::fs::write(&token, written).unwrap();
            assert_eq!(webhook.authorization().await.unwrap(), expected, "{written:?}");
        }
        std::fs::remove_file(&token).unwrap();
        assert_eq!(webhook.authorization().await.unwrap(), "Bearer second");
    }

    #[test]
    fn mistakes_are_explained() {
        let with = |cluster: &str, user: &str| {
            format!("clusters: [{{name: a, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]")
        };
        for (text, expected) in [
            ("[".to_owned(), "it is no kubeconfig"),
            ("current-context: x".to_owned(), "it has no context \"x\""),
            (with("server: nowhere", ""), "server is no URL"),
            (with("server: 'ftp://a'", ""), "neither https nor http"),
            (with("server: 'https://a', certificate-authority: none.pem", ""), "none.pem"),
            (with("server: 'https://a', certificate-authority-data: '***'", ""), "is no base64"),
            (with("server: 'https://a', certificate-authority-data: aGVsbG8=", ""), "has no certificate in it"),
            (with("server: 'https://a', proxy-url: 'http://p'", ""), "proxy-url is not supported"),
            (with("server: 'https://a'", "client-key-data: aGVsbG8="), "need each other"),
            (with("server: 'https://a'", "exec: {command: x}"), "exec is not supported here"),
        ] {
            let error = parse(&text).unwrap_err();
            let error = croft_meta::Chain(&error).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

//! Talking to a server through its public API, with any kubeconfig.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use clap::Args;
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tower::ServiceExt;

use crate::api::segment;

/// Which server, and where in it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClientArgs {
    /// The kubeconfig to use [default: $KUBECONFIG, the data directory's, ~/.kube/config]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
    /// The namespace [default: the context's, or "default"]
    #[arg(short, long, value_name = "NAME", global = true)]
    namespace: Option<String>,
}

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct Client {
    kube: kube::Client,
    config: kube::Config,
    pub(crate) namespace: String,
}

/// The reason that `kube::Client` gives to what it cannot read.
const UNREAD: &str = "Failed to parse error data";

/// What the server said no with, so that a command can add what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl ClientArgs {
    /// As if this kubeconfig had been asked for, and nothing else.
    pub(crate) fn with(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig: Some(kubeconfig), context: None, namespace: None }
    }

    pub(crate) fn given(kubeconfig: Option<PathBuf>) -> Self {
        Self { kubeconfig, context: None, namespace: None }
    }

    /// For a program that may be a pod: then it is its service account, unless somebody says otherwise.
    pub(crate) async fn kube_or_pod(&self) -> anyhow::Result<kube::Client> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if self.kubeconfig.is_some() || is_set("KUBECONFIG") || !is_set("KUBERNETES_SERVICE_HOST") {
            return Ok(self.connect().await?.kube);
        }
        let mut config = kube::Config::incluster().context("cannot use the account of this pod")?;
        config.connect_timeout = Some(Duration::from_secs(5));
        Ok(kube::Client::try_from(config)?)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let path = self.find()?;
        let read = Kubeconfig::read_from(&path);
        let kubeconfig = read.with_context(|| format!("cannot use the kubeconfig {}", path.display()))?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .with_context(|| format!("cannot use the kubeconfig {}", path.display()))?;
        config.connect_timeout = Some(Duration::from_secs(5));
        // Consoles and uploads may be silent for long.
        config.read_timeout = None;
        config.write_timeout = None;
        if let Some(namespace) = &self.namespace {
            segment(namespace)?.clone_into(&mut config.default_namespace);
        }
        let namespace = config.default_namespace.clone();
        Ok(Client { kube: kube::Client::try_from(config.clone())?, config, namespace })
    }

    /// For a command that needs no server.
    pub(crate) fn namespace_said(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn find(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.kubeconfig {
            return Ok(path.clone());
        }
        if let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
            // A list of files is kubectl's way of merging; the first that exists is what we use.
            let mut paths = std::env::split_paths(&path);
            return paths.find(|path| path.exists()).ok_or_else(|| anyhow!("no file that $KUBECONFIG names exists"));
        }
        let data_dir = std::env::var_os("CROFT_DATA_DIR").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let candidates = [
            data_dir.map(|dir| dir.join("kubeconfig")),
            Some(PathBuf::from("data/kubeconfig")),
            Some(PathBuf::from("/var/lib/croft/kubeconfig")),
            home.map(|home| home.join(".kube/config")),
        ];
        let is_readable = |path: &PathBuf| std::fs::File::open(path).is_ok();
        candidates.into_iter().flatten().find(is_readable).ok_or_else(|| {
            anyhow!("no kubeconfig: say --kubeconfig FILE, or set KUBECONFIG to the one that \"croft server\" printed")
        })
    }
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None).await
    }

    /// None if there is no such object.
    pub(crate) async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(err) if is_not_found(&err) => Ok(None),
            Err(err) => Err(err),
        }
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, path, Some(("application/json", object))).await
    }

    /// A subresource's PUT: its answer may be empty.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(Method::PUT, path, Some(("application/json", body))).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> anyhow::Result<Value> {
        self.call(Method::PATCH, path, Some(("application/merge-patch+json", patch))).await
    }

    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::DELETE, path, None).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> anyhow::Result<Value> {
        let text = self.text(method, path, body).await?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).context("the server's answer is not JSON")
    }

    pub(crate) async fn text(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<String> {
        let mut request = Request::builder().method(method).uri(path);
        let bytes = match body {
            Some((content_type, body)) => {
                request = request.header(http::header::CONTENT_TYPE, content_type);
                body.to_string().into_bytes()
            }
            None => Vec::new(),
        };
        self.kube.request_text(request.body(bytes)?).await.map_err(|err| self.explain(&err))
    }

    /// The answer of a request whose body, or whose answer, is streamed. A refusal is an error.
    pub(crate) async fn send(&self, request: Request<Body>) -> anyhow::Result<http::Response<Body>> {
        let answer = self.kube.send(request).await.map_err(|err| self.explain(&err))?;
        accepted(answer).await
    }

    /// Sends a body that is never whole in memory, which `kube::Client` cannot.
    pub(crate) async fn send_streamed<B>(&self, request: Request<B>) -> anyhow::Result<()>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let connector = self.config.rustls_https_connector()?;
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        let service = tower::ServiceBuilder::new()
            .layer(self.config.base_uri_layer())
            .option_layer(self.config.auth_layer()?)
            .map_err(tower::BoxError::from)
            .service(http);
        let answer = service.oneshot(request).await.map_err(|err| self.explain(&kube::Error::Service(err)))?;
        accepted(answer).await.map(drop)
    }

    /// A table of the objects at `path`, as the server prints it.
    pub(crate) async fn table(&self, path: &str) -> anyhow::Result<Value> {
        let request = Request::get(path)
            .header(http::header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())?;
        let text = self.kube.request_text(request).await.map_err(|err| self.explain(&err))?;
        serde_json::from_str(&text).context("the server's table is not JSON")
    }

    pub(crate) fn kube(&self) -> kube::Client {
        self.kube.clone()
    }

    fn explain(&self, err: &kube::Error) -> anyhow::Error {
        if let kube::Error::Api(status) = err {
            return refusal(status).into();
        }
        // The client's errors repeat their sources; only the innermost says something new.
        let mut innermost: &dyn std::error::Error = err;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        anyhow!("cannot talk to the server at {} (is it running?): {innermost}", self.config.cluster_url)
    }
}

/// The answer, unless it is a refusal.
async fn accepted<B: http_body::Body>(answer: http::Response<B>) -> anyhow::Result<http::Response<B>> {
    let status = answer.status();
    if status.is_success() || status.is_informational() {
        return Ok(answer);
    }
    // One that cannot be read to its end still has its code.
    let body = answer.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(read_refusal(status.as_u16(), &body).into())
}

/// What `kube::Client` made of it. A failure of Harvester's paths is no Status to it, and is all in the message.
pub(crate) fn refusal(status: &kube::core::Status) -> Refusal {
    if status.reason == UNREAD {
        return read_refusal(status.code, status.message.as_bytes());
    }
    Refusal { code: status.code, reason: status.reason.clone(), message: status.message.clone() }
}

fn read_refusal(code: u16, body: &[u8]) -> Refusal {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    let mut message = text("message");
    if message.is_empty() {
        String::from_utf8_lossy(body).trim().clone_into(&mut message);
    }
    if message.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(message, "the server answered with code {code}");
    }
    // A Status has its reason there, and a failure of Harvester's paths here.
    let reason = if text("reason").is_empty() { text("code") } else { text("reason") };
    Refusal { code, reason, message }
}

pub(crate) fn is_not_found(err: &anyhow::Error) -> bool {
    err.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 404)
}

/// Kinds that the commands are about, and where their objects are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) prefix: &'static str,
    pub(crate) plural: &'static str,
}

pub(crate) const MACHINES: Kind = Kind { prefix: "/apis/kubevirt.io/v1", plural: "virtualmachines" };
pub(crate) const INSTANCES: Kind = Kind { prefix: "/apis/kubevirt.io/v1", plural: "virtualmachineinstances" };
pub(crate) const IMAGES: Kind = Kind { prefix: "/apis/harvesterhci.io/v1beta1", plural: "virtualmachineimages" };
pub(crate) const CLAIMS: Kind = Kind { prefix: "/api/v1", plural: "persistentvolumeclaims" };
pub(crate) const BACKUPS: Kind = Kind { prefix: "/apis/harvesterhci.io/v1beta1", plural: "virtualmachinebackups" };
pub(crate) const RESTORES: Kind = Kind { prefix: "/apis/harvesterhci.io/v1beta1", plural: "virtualmachinerestores" };
pub(crate) const SCHEDULES: Kind = Kind { prefix: "/apis/harvesterhci.io/v1beta1", plural: "schedulevmbackups" };
pub(crate) const VOLUME_SNAPSHOTS: Kind =
    Kind { prefix: "/apis/snapshot.storage.k8s.io/v1", plural: "volumesnapshots" };
pub(crate) const SETTINGS: Kind = Kind { prefix: "/apis/harvesterhci.io/v1beta1", plural: "settings" };
pub(crate) const SECRETS: Kind = Kind { prefix: "/api/v1", plural: "secrets" };

impl Kind {
    pub(crate) fn all(self, namespace: &str) -> String {
        if namespace.is_empty() {
            return format!("{}/{}", self.prefix, self.plural);
        }
        format!("{}/namespaces/{namespace}/{}", self.prefix, self.plural)
    }

    pub(crate) fn one(self, namespace: &str, name: &str) -> anyhow::Result<String> {
        Ok(format!("{}/{}", self.all(namespace), segment(name)?))
    }
}

/// A KubeVirt subresource: `.../virtualmachines/<name>/start`.
pub(crate) fn subresource(kind: Kind, namespace: &str, name: &str, sub: &str) -> anyhow::Result<String> {
    let kind = Kind { prefix: "/apis/subresources.kubevirt.io/v1", ..kind };
    Ok(format!("{}/{sub}", kind.one(namespace, name)?))
}

/// A file that a user named, opened with an error that names it.
pub(crate) fn open(path: &Path) -> anyhow::Result<std::fs::File> {
    std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(MACHINES.all(""), "/apis/kubevirt.io/v1/virtualmachines");
        assert_eq!(CLAIMS.one("a", "b").unwrap(), "/api/v1/namespaces/a/persistentvolumeclaims/b");
        let start = subresource(MACHINES, "a", "b", "start").unwrap();
        assert_eq!(start, "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/b/start");
        assert!(MACHINES.one("a", "../secrets").is_err());
    }

    #[test]
    fn refusals_carry_what_the_server_said() {
        for (body, expected) in [
            (r#"{"reason":"Conflict","message":"VM is already running"}"#, "VM is already running"),
            ("upstream is gone\n", "upstream is gone"),
            ("", "the server answered with code 409"),
        ] {
            assert_eq!(read_refusal(409, body.as_bytes()).message, expected);
        }
        let steve = r#"{"type":"error","status":401,"code":"TotpRequired","message":"a code is needed"}"#;
        let read = refusal(&kube::core::Status::failure(steve, UNREAD).with_code(401));
        assert_eq!((read.code, read.reason.as_str(), read.message.as_str()), (401, "TotpRequired", "a code is needed"));
    }
}

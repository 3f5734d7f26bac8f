//! Talking to a running server as its admin, found through its data directory.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use croft_pki::Kubeconfig;
use kube::config::KubeConfigOptions;
use serde_json::Value;

use crate::client::{Client, ClientArgs};

/// Where the server is that a command is about.
#[derive(Debug, Args)]
pub(crate) struct DataDir {
    /// The server's data directory
    #[arg(long, env = "CROFT_DATA_DIR", value_name = "DIR", default_value = "/var/lib/croft")]
    data_dir: PathBuf,
}

impl DataDir {
    /// The kubeconfig of the admin, which the server keeps there.
    pub(crate) fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        let path = self.data_dir.join("kubeconfig");
        let kubeconfig = Kubeconfig::read(&path).context("only the owner of the data directory may do this")?;
        kubeconfig.ok_or_else(|| {
            anyhow!(
                "{} does not exist; start \"croft server\" once, or point --data-dir at its directory",
                path.display()
            )
        })
    }
}

impl DataDir {
    /// The server as its admin sees it.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        // Says what to do if there is none.
        self.kubeconfig()?;
        ClientArgs::with(self.data_dir.join("kubeconfig")).connect().await
    }
}

pub(crate) struct Api {
    client: kube::Client,
    server: String,
}

impl Api {
    pub(crate) async fn connect(kubeconfig: &Kubeconfig) -> anyhow::Result<Self> {
        let yaml = kube::config::Kubeconfig::from_yaml(&kubeconfig.to_yaml()?)?;
        let mut config = kube::Config::from_custom_kubeconfig(yaml, &KubeConfigOptions::default()).await?;
        config.connect_timeout = Some(Duration::from_secs(5));
        config.read_timeout = Some(Duration::from_secs(30));
        Ok(Self { client: kube::Client::try_from(config)?, server: kubeconfig.server.clone() })
    }

    /// Creates `object` at `path`; the answer is what the server made of it.
    pub(crate) async fn post(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes())?;
        self.client.request(request).await.map_err(|err| self.explain(err))
    }

    fn explain(&self, err: kube::Error) -> anyhow::Error {
        if let kube::Error::Api(status) = err {
            return anyhow!("the server refused: {}", status.message);
        }
        // The client's errors repeat their sources; only the innermost says something new.
        let mut innermost: &dyn std::error::Error = &err;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        anyhow!("cannot talk to the server at {} (is it running?): {innermost}", self.server)
    }
}

/// A path segment from a name that a user typed.
pub(crate) fn segment(name: &str) -> anyhow::Result<&str> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte));
    if name.is_empty() || !is_plain || name == "." || name == ".." {
        return Err(anyhow!("{name:?} is not a name: lower-case letters, digits, '-' and '.'"));
    }
    Ok(name)
}

/// Runs a command that waits for the server.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("cannot start the runtime")?.block_on(future))
}

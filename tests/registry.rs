//! Debian's docker-registry with container disks in it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_testkit::{Authority, Call, Client, Process, Protocol, eventually, free_port};
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The user `user` with the password `secret`.
const PASSWORDS: &str = "user:$2b$04$Wc/kEYRtABijptoU5qe92u0JQVbf/Lq6oDYobDgMHrDeR9/ua5SCq\n";

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Registry {
    /// `127.0.0.1:port`
    pub host: String,
    client: Client,
    process: Process,
    dir: TempDir,
}

impl Registry {
    /// With `is_locked` it wants the password of [`Registry::pull_secret`].
    pub async fn start(is_locked: bool) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let port = free_port()?;
        let data = dir.path().join("data");
        let mut config = json!({
            "version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": data}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        if is_locked {
            let passwords = dir.path().join("passwords");
            std::fs::write(&passwords, PASSWORDS)?;
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": passwords}});
        }
        let file = dir.path().join("config.yml");
        std::fs::write(&file, config.to_string())?;
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&file);
        let process = Process::spawn("docker-registry", command, &dir.path().join("log"))?;
        let host = format!("127.0.0.1:{port}");
        // The client wants an authority to trust, though nothing here is encrypted.
        let client =
            Client::trusting(&format!("http://{host}"), &Authority::new("unused")?.cert_pem(), Protocol::Http1)?;
        eventually("the registry answers", async || client.get("/v2/").await.map(drop)).await;
        Ok(Self { host, client, process, dir })
    }

    /// Ends early; what was pulled must be kept by whoever pulled it.
    pub fn stop(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// A Secret that opens it, or does not.
    pub fn pull_secret(&self, name: &str, password: &str) -> Value {
        let auth = STANDARD.encode(format!("user:{password}"));
        let config = json!({"auths": {&self.host: {"auth": auth}}}).to_string();
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}})
    }

    /// Pushes a container disk, `<repository>:latest`, and gives its name.
    pub async fn push_disk(&self, repository: &str, disk: &Path) -> Result<String> {
        let root = tempfile::tempdir_in(self.dir.path())?;
        std::fs::create_dir(root.path().join("disk"))?;
        std::fs::copy(disk, root.path().join("disk/disk.img"))?;
        let layer = self.dir.path().join("layer.tar");
        let mut tar = Command::new("tar");
        tar.args(["-c", "--gzip", "-f"]).arg(&layer).arg("-C").arg(root.path()).arg("disk");
        if !tar.status()?.success() {
            bail!("tar failed");
        }
        let layer = std::fs::read(&layer)?;
        let size = layer.len();
        let layer = self.push_blob(repository, layer).await?;
        let config = self.push_blob(repository, b"{}".to_vec()).await?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2, "digest": config},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": size, "digest": layer}],
        });
        let path = format!("/v2/{repository}/manifests/latest");
        self.send(Call::new(Method::PUT, &path).body(MANIFEST, manifest.to_string())).await?;
        Ok(format!("{}/{repository}:latest", self.host))
    }

    async fn push_blob(&self, repository: &str, blob: Vec<u8>) -> Result<String> {
        let begun = self.send(Call::new(Method::POST, &format!("/v2/{repository}/blobs/uploads/"))).await?;
        let digest = Sha256::digest(&blob).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        let (_, path) = begun.split_once(&self.host).context("the place to upload to")?;
        let path = format!("{path}&digest={digest}");
        self.send(Call::new(Method::PUT, &path).body("application/octet-stream", blob)).await?;
        Ok(digest)
    }

    /// Where the answer says to go on.
    async fn send(&self, call: Call) -> Result<String> {
        let password = STANDARD.encode("user:secret");
        let answer = self.client.send(call.header("authorization", &format!("Basic {password}"))).await?;
        if !(200..300).contains(&answer.status) {
            bail!("{}: {}", answer.status, answer.text());
        }
        Ok(answer.header("location").unwrap_or_default().to_owned())
    }
}

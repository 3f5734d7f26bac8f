//! nginx with one file, over TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use croft_testkit::{Authority, Client, Process, Protocol, eventually, find_program, free_port};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) client: Client,
    /// The file without TLS.
    pub(crate) plain_url: String,
    /// With TLS.
    pub(crate) url: String,
    process: Process,
    dir: TempDir,
}

impl Drop for Nginx {
    /// Its workers outlive a master that is killed; one that is asked to go takes them with it, by force after a second.
    fn drop(&mut self) {
        let _ = self.process.stop();
    }
}

impl Nginx {
    /// Serves `bytes` at `/file`.
    pub(crate) async fn start(bytes: &[u8]) -> Result<Self> {
        Self::start_in(&std::env::temp_dir(), bytes).await
    }

    /// The same with its files below a directory, and so on its disk.
    pub(crate) async fn start_in(parent: &Path, bytes: &[u8]) -> Result<Self> {
        Self::launch(parent, bytes, "").await
    }

    /// Serves the web page's files where Croft has them, packed beforehand as for Croft (Debian's nginx knows only gzip).
    pub(crate) async fn start_with_page(page: &Path) -> Result<Self> {
        let types = "text/html html; text/javascript js; text/css css; font/woff2 woff2; image/svg+xml svg;";
        let page = page.display();
        let location =
            format!("location /dashboard/ {{ alias {page}/; index index.html; gzip_static on; types {{ {types} }} }}");
        Self::launch(&std::env::temp_dir(), b"x", &location).await
    }

    async fn launch(parent: &Path, bytes: &[u8], location: &str) -> Result<Self> {
        let program = find_program("nginx").context("nginx is not installed (Debian: nginx-light)")?;
        let dir = tempfile::Builder::new().prefix("croft-nginx-").tempdir_in(parent)?;
        let (authority, port, plain) = (Authority::new("nginx")?, free_port()?, free_port()?);
        let identity = authority.server()?;
        let root = dir.path().display();
        for (name, content) in
            [("tls.crt", identity.cert_pem.as_bytes()), ("tls.key", identity.key_pem.as_bytes()), ("file", bytes)]
        {
            std::fs::write(dir.path().join(name), content)?;
        }
        let temporary =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|n| format!("{n}_temp_path {root}/{n};")).concat();
        let config = format!(
            "daemon off; pid {root}/pid; error_log {root}/error.log; worker_processes 2; events {{}}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; default_type application/json; {temporary}\n\
             server {{ listen 127.0.0.1:{port} ssl http2; listen 127.0.0.1:{plain}; ssl_certificate {root}/tls.crt; ssl_certificate_key {root}/tls.key; root {root};\n\
             location /put {{ dav_methods PUT; client_max_body_size 0; }} {location} }} }}\n"
        );
        std::fs::write(dir.path().join("nginx.conf"), config)?;
        // A worker that drops its rights could not read a directory that is for its owner only.
        let mut command = Command::new(program);
        command.arg("-c").arg(dir.path().join("nginx.conf")).args(["-g", "user root;"]);
        let process = Process::spawn("nginx", command, &dir.path().join("log"))?;
        let url = format!("https://127.0.0.1:{port}");
        let client = Client::trusting(&url, &authority.cert_pem(), Protocol::Http2)?;
        eventually("nginx answers", async || client.get("/file").await).await;
        Ok(Self { client, plain_url: format!("http://127.0.0.1:{plain}/file"), url, process, dir })
    }

    /// Where a file can be put.
    pub(crate) fn put_url(&self) -> String {
        format!("{}/put", self.url)
    }

    /// Where it is then.
    pub(crate) fn put_file(&self) -> PathBuf {
        self.dir.path().join("put")
    }
}

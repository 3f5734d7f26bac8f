//! Where a server is and how its administrator gets in, read from a kubeconfig.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Client, Identity, Kubectl, Protocol};

/// A running API server, seen from outside.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `https://127.0.0.1:port`, without a trailing slash.
    pub url: String,
    pub kubeconfig: PathBuf,
    pub ca_pem: String,
    /// The administrator's client certificate.
    pub admin: Identity,
}

impl Endpoint {
    /// Reads the current context's cluster and user from a kubeconfig with inline certificates.
    pub fn from_kubeconfig(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let config: Value = serde_saphyr::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
        let text_at = |pointer: &str| {
            config
                .pointer(pointer)
                .and_then(Value::as_str)
                .with_context(|| format!("no {pointer} in {}", path.display()))
        };
        let pem_at = |pointer: &str| -> Result<String> {
            Ok(String::from_utf8(STANDARD.decode(text_at(pointer)?).with_context(|| pointer.to_owned())?)?)
        };
        Ok(Self {
            url: text_at("/clusters/0/cluster/server")?.trim_end_matches('/').to_owned(),
            kubeconfig: path.to_owned(),
            ca_pem: pem_at("/clusters/0/cluster/certificate-authority-data")?,
            admin: Identity {
                cert_pem: pem_at("/users/0/user/client-certificate-data")?,
                key_pem: pem_at("/users/0/user/client-key-data")?,
            },
        })
    }

    /// Writes a kubeconfig that [`Endpoint::from_kubeconfig`] and every Kubernetes client can read.
    pub fn write_kubeconfig(path: &Path, url: &str, ca_pem: &str, admin: &Identity) -> Result<()> {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "admin",
            "clusters": [{"name": "test", "cluster": {
                "server": url, "certificate-authority-data": STANDARD.encode(ca_pem)}}],
            "users": [{"name": "admin", "user": {
                "client-certificate-data": STANDARD.encode(&admin.cert_pem),
                "client-key-data": STANDARD.encode(&admin.key_pem)}}],
            "contexts": [{"name": "admin", "context": {"cluster": "test", "user": "admin"}}],
        });
        std::fs::write(path, config.to_string()).with_context(|| format!("write {}", path.display()))
    }

    /// A client with the administrator's certificate.
    pub fn client(&self) -> Result<Client> {
        self.client_over(Protocol::Any)
    }

    /// The same, over one HTTP version only.
    pub fn client_over(&self, protocol: Protocol) -> Result<Client> {
        Ok(Client::new(&self.url, self.tls(Some(&self.admin))?, protocol))
    }

    /// A client without credentials.
    pub fn anonymous(&self) -> Result<Client> {
        Ok(Client::new(&self.url, self.tls(None)?, Protocol::Any))
    }

    /// A client with a bearer token and no certificate.
    pub fn bearer(&self, token: &str) -> Result<Client> {
        Ok(self.anonymous()?.with_bearer(token))
    }

    pub fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(&self.kubeconfig)
    }

    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.url.trim_start_matches("https://").parse()?)
    }

    /// A bare TLS connection, for bytes that no HTTP library would send.
    pub async fn connect(&self, identity: Option<&Identity>, alpn: &[&str]) -> Result<TlsStream<TcpStream>> {
        let mut config = self.tls(identity)?;
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        let tcp = TcpStream::connect(self.address()?).await?;
        let name = ServerName::from(self.address()?.ip()).to_owned();
        Ok(TlsConnector::from(Arc::new(config)).connect(name, tcp).await?)
    }

    fn tls(&self, identity: Option<&Identity>) -> Result<ClientConfig> {
        client_config(&self.ca_pem, identity)
    }
}

/// TLS that trusts one authority and, with an identity, shows a certificate.
pub(crate) fn client_config(ca_pem: &str, identity: Option<&Identity>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(cert?)?;
    }
    // Named explicitly: a test binary may have more than one provider compiled in through its dependencies.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

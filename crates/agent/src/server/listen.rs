//! The socket, and TLS on it.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use croft_meta::Chain;
use croft_pki::node::API_SERVER;
use croft_pki::{AgentTls, CertResolver, ServingCert};
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::{AgentError, Listen};

/// How often the certificate is looked at; it is renewed with a third of its life left.
const CERT_CHECK: Duration = Duration::from_hours(1);

/// Listens where asked; on a default that is taken, wherever there is room.
pub(crate) async fn bind(listen: Listen) -> Result<TcpListener, AgentError> {
    let asked = listen.address;
    let source = match TcpListener::bind(asked).await {
        Ok(listener) => return Ok(listener),
        Err(error) if listen.is_required => return Err(AgentError::Listen { address: asked, source: error }),
        Err(error) => error,
    };
    // Without IPv6 there is still IPv4.
    let is_family_missing = asked.is_ipv6() && source.kind() != ErrorKind::AddrInUse;
    let ip = if is_family_missing { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { asked.ip() };
    for port in [asked.port(), 0] {
        let address = SocketAddr::new(ip, port);
        if let Ok(listener) = TcpListener::bind(address).await {
            let used = listener.local_addr().unwrap_or(address);
            tracing::warn!(%asked, %used, error = %source, "the node's usual address cannot be had; using another");
            return Ok(listener);
        }
    }
    Err(AgentError::Listen { address: asked, source })
}

/// The node's certificate, and who may come in. Clones share it.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
    certificate: Arc<Certificate>,
}

struct Certificate {
    issue: Box<dyn Fn() -> croft_pki::Result<AgentTls> + Send + Sync>,
    current: Mutex<ServingCert>,
    resolver: Arc<CertResolver>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    pub(crate) fn new(issue: Box<dyn Fn() -> croft_pki::Result<AgentTls> + Send + Sync>) -> Result<Self, AgentError> {
        let (current, ca_pem) = certificate(&*issue).map_err(AgentError::Identity)?;
        let resolver = CertResolver::new(&current);
        let config = croft_pki::peer::server_config(Arc::clone(&resolver), &ca_pem, API_SERVER);
        let config = config.map_err(AgentError::Identity)?;
        let certificate = Arc::new(Certificate { issue, current: Mutex::new(current), resolver });
        Ok(Self { config, certificate })
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).await
    }

    /// Keeps the certificate young until `stop`.
    pub(crate) async fn renew(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(CERT_CHECK)).await.is_some() {
            let certificate = &self.certificate;
            if !certificate.current.lock().due_for_renewal(Timestamp::now()) {
                continue;
            }
            match self::certificate(&*certificate.issue) {
                Ok((renewed, _)) => {
                    certificate.resolver.swap(&renewed);
                    *certificate.current.lock() = renewed;
                }
                Err(error) => tracing::error!(error = %Chain(&error), "the node's certificate could not be renewed"),
            }
        }
    }
}

fn certificate(issue: &dyn Fn() -> croft_pki::Result<AgentTls>) -> croft_pki::Result<(ServingCert, String)> {
    let issued = issue()?;
    let cert = ServingCert::from_pem(&issued.cert_pem, issued.key_pem.reveal()).map_err(croft_pki::Error::Tls)?;
    Ok((cert, issued.ca_pem))
}

//! The certificate that API servers are shown, and whose certificates they show.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use croft_meta::Chain;
use croft_pki::{Ca, CertResolver, ServerNames, ServingCert};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

/// How often certificates are looked at: files change when whoever issues them renews them.
const CHECK: Duration = Duration::from_mins(1);

/// Where the serving certificate is from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Somebody else issues it, and renews it in place.
    Files { cert: PathBuf, key: PathBuf },
    /// An authority of our own in this directory issues it.
    Own { dir: PathBuf, names: ServerNames },
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("using the certificate {}", path.display())]
    Use {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("using the authorities of clients in {}", path.display())]
    ClientCa {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(transparent)]
    Pki(#[from] croft_pki::Error),
    #[error("setting up TLS")]
    Tls(#[from] rustls::Error),
}

impl Certificate {
    fn load(&self, now: Timestamp) -> Result<ServingCert, Error> {
        match self {
            Self::Files { cert, key } => {
                let pair = ServingCert::from_pem(&read(cert)?, &read(key)?);
                pair.map_err(|source| Error::Use { path: cert.clone(), source })
            }
            Self::Own { dir, names } => {
                let ca = Ca::load_or_create(dir, now)?;
                Ok(ServingCert::load_or_issue(dir, &ca, names, now)?)
            }
        }
    }
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// How the listener speaks TLS, and what keeps its certificate young.
pub(crate) struct Speaking {
    pub(crate) config: Arc<ServerConfig>,
    resolver: Arc<CertResolver>,
    shown: ServingCert,
    certificate: Certificate,
}

impl Speaking {
    /// With `client_ca`, whoever has no certificate of these authorities is not talked to.
    pub(crate) fn new(certificate: Certificate, client_ca: Option<&Path>) -> Result<Self, Error> {
        let shown = certificate.load(Timestamp::now())?;
        let resolver = CertResolver::new(&shown);
        let builder = ServerConfig::builder_with_provider(croft_pki::tls::provider());
        let builder = builder.with_safe_default_protocol_versions()?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(verifier(path)?),
        };
        let asked: Arc<CertResolver> = Arc::clone(&resolver);
        let mut config = builder.with_cert_resolver(asked);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), resolver, shown, certificate })
    }

    /// Shows what is new of the certificate, until the server stops.
    pub(crate) async fn keep(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK) => {}
                () = stop.cancelled() => return,
            }
            match self.certificate.load(Timestamp::now()) {
                Ok(found) if found.cert() != self.shown.cert() => {
                    self.resolver.swap(&found);
                    self.shown = found;
                    tracing::info!("a new certificate is shown");
                }
                Ok(_) => {}
                // The old one may be good for long; while a file is being replaced it cannot be read.
                Err(error) => tracing::warn!(error = %Chain(&error), "the certificate cannot be loaded again"),
            }
        }
    }
}

fn verifier(path: &Path) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, Error> {
    let pem = read(path)?;
    let unusable = |source: Box<dyn std::error::Error + Send + Sync>| Error::ClientCa { path: path.to_owned(), source };
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(cert.map_err(|error| unusable(error.into()))?).map_err(|error| unusable(error.into()))?;
    }
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), croft_pki::tls::provider()).build();
    built.map_err(|error| unusable(error.into()))
}

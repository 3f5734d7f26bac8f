//! How the API server is known to servers behind it, which it asks in the name of its users.
//!
//! An authority of its own signs one client certificate, for [`CLIENT`]. Whoever shows it is believed when it says who
//! the user is: so this authority signs nothing else.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::danger::ClientCertVerifier;

use crate::{Ca, ClientCertError, Error, Identity, Result, client_cert};

/// The name in the client certificate.
pub const CLIENT: &str = "front-proxy-client";
const CLIENT_LIFE: Duration = Duration::from_hours(365 * 24);

/// The authority of that one client.
#[derive(Debug)]
pub struct FrontProxy(Ca);

/// What a client shows in a handshake.
#[derive(Debug)]
pub struct ClientIdentity {
    pub cert: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

impl FrontProxy {
    /// Opens the authority in `dir`, making it on the first start.
    pub fn load_or_create(dir: &Path, now: Timestamp) -> Result<Self> {
        Ok(Self(Ca::load_or_create(dir, now)?))
    }

    /// What the servers behind this one trust.
    pub fn ca_pem(&self) -> &str {
        self.0.cert_pem()
    }

    /// A new client certificate, good for a year.
    pub fn identity(&self, now: Timestamp) -> Result<ClientIdentity> {
        let issued = self.0.issue_client(CLIENT, &[], CLIENT_LIFE, now)?;
        let cert = CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).map_err(|err| broken(&err))?;
        let key = PrivateKeyDer::from_pem_slice(issued.key_pem.reveal().as_bytes()).map_err(|err| broken(&err))?;
        Ok(ClientIdentity { cert, key })
    }
}

fn broken(err: &rustls::pki_types::pem::Error) -> Error {
    Error::Tls(rustls::Error::General(err.to_string()))
}

/// The authorities whose certificates make a caller one who speaks for others.
#[derive(Clone)]
pub struct ProxyAuthority(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for ProxyAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyAuthority").finish_non_exhaustive()
    }
}

impl ProxyAuthority {
    /// From certificates in PEM.
    pub fn from_pem(pem: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for cert in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(cert.map_err(|err| broken(&err))?).map_err(Error::Tls)?;
        }
        if roots.is_empty() {
            return Err(Error::Tls(rustls::Error::General("there is no certificate in it".to_owned())));
        }
        Ok(Self(client_cert::verifier(Arc::new(roots))?))
    }

    /// Who holds this certificate; an error if these authorities did not sign it.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Identity, ClientCertError> {
        client_cert::identify(&*self.0, chain, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_client_is_believed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = Timestamp::now();
        let front = FrontProxy::load_or_create(dir.path(), now).unwrap();
        let authority = ProxyAuthority::from_pem(front.ca_pem()).unwrap();
        let shown = front.identity(now).unwrap().cert;
        assert_eq!(authority.verify(&[shown], now).unwrap().user, CLIENT);
        let stranger = FrontProxy::load_or_create(other.path(), now).unwrap().identity(now).unwrap().cert;
        assert!(authority.verify(&[stranger], now).is_err());
        assert!(ProxyAuthority::from_pem("nothing").is_err());
    }
}

//! How listeners speak TLS.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::{Ca, Error, Result, ServingCert};

/// The one source of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, an optional client certificate.
pub fn server_config(resolver: Arc<CertResolver>, ca: &Ca) -> Result<Arc<ServerConfig>> {
    let provider = provider();
    let verifier = AnyClientCert { provider: Arc::clone(&provider), hints: ca.roots().subjects() };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Shows the serving certificate that was last put in; new connections see a swap at once, open ones go on.
pub struct CertResolver(ArcSwap<CertifiedKey>);

impl CertResolver {
    pub fn new(cert: &ServingCert) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(cert.certified_key())))
    }

    pub fn swap(&self, cert: &ServingCert) {
        self.0.store(cert.certified_key());
    }
}

impl fmt::Debug for CertResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertResolver")
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Lets every client certificate through the handshake, provided that the client holds its key.
///
/// Whether the certificate is any good is decided per request ([`Ca::verify_client`]): as in Kubernetes, a bad one is
/// answered with a 401 that says so, not with a broken connection, and a token in the same request still counts.
#[derive(Debug)]
struct AnyClientCert {
    provider: Arc<CryptoProvider>,
    /// The authority's name. Browsers offer only certificates that it signed, and so do not ask users for one.
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyClientCert {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;

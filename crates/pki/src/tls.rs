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
use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};

use crate::{Ca, Error, Result, ServingCert};

/// The one source of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, an optional client certificate.
pub fn server_config(resolver: Arc<CertResolver>, ca: &Ca) -> Result<Arc<ServerConfig>> {
    chosen_config(resolver, ca, &Offer::default())
}

/// What a listener offers, in OpenSSL's words. Nothing chosen is everything that is safe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// `TLSv1.2` and `TLSv1.3`; others are not spoken.
    pub protocols: Vec<String>,
    /// Of TLS 1.2; those of 1.3 are not a matter of choice.
    pub ciphers: Vec<String>,
}

/// OpenSSL's names of the suites of TLS 1.2.
const SUITES: [(CipherSuite, &str); 6] = [
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305"),
];

impl Offer {
    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let is_chosen = |name: &str| self.protocols.is_empty() || self.protocols.iter().any(|own| own == name);
        let known = [("TLSv1.3", &rustls::version::TLS13), ("TLSv1.2", &rustls::version::TLS12)];
        known.into_iter().filter(|(name, _)| is_chosen(name)).map(|(_, version)| version).collect()
    }

    fn has_suite(&self, suite: SupportedCipherSuite) -> bool {
        let name = SUITES.iter().find(|(known, _)| *known == suite.suite()).map(|(_, name)| *name);
        self.ciphers.is_empty() || name.is_none_or(|name| self.ciphers.iter().any(|own| own == name))
    }
}

/// One certificate, whoever asks.
struct Fixed(Arc<CertifiedKey>);

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fixed")
    }
}

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// As [`server_config`], with a certificate that somebody else issued.
pub fn foreign_config(cert: &ServingCert, ca: &Ca, offer: &Offer) -> Result<Arc<ServerConfig>> {
    chosen_config(Arc::new(Fixed(cert.certified_key())), ca, offer)
}

/// Whether there is anything left to speak.
pub fn check_offer(offer: &Offer, ca: &Ca) -> Result<()> {
    chosen_config(Arc::new(Nobody), ca, offer).map(drop)
}

/// Has no certificate; good for trying out a configuration.
#[derive(Debug)]
struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// As [`server_config`], with fewer protocols and ciphers. Fails if none are left.
pub fn chosen_config(resolver: Arc<dyn ResolvesServerCert>, ca: &Ca, offer: &Offer) -> Result<Arc<ServerConfig>> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| offer.has_suite(*suite));
    let provider = Arc::new(provider);
    let verifier = AnyClientCert { provider: Arc::clone(&provider), hints: ca.roots().subjects() };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&offer.versions())
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

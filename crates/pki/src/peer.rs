//! TLS between Croft's own parts: the listener lets in one named client and nobody else.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};

use crate::{CertResolver, Error, Result, client_cert, tls};

/// TLS and HTTP/1.1 for clients that the authority `ca_pem` calls `user`. Others do not get past the handshake.
pub fn server_config(resolver: Arc<CertResolver>, ca_pem: &str, user: &str) -> Result<Arc<ServerConfig>> {
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes())
        .map_err(|error| Error::Tls(rustls::Error::General(error.to_string())))?;
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(Error::Tls)?;
    let inner = client_cert::verifier(Arc::new(roots))?;
    let mut config = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_client_cert_verifier(Arc::new(OneUser { inner, user: user.to_owned() }))
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct OneUser {
    inner: Arc<dyn ClientCertVerifier>,
    user: String,
}

impl ClientCertVerifier for OneUser {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        if client_cert::common_name(end_entity).as_deref() == Some(self.user.as_str()) {
            return Ok(verified);
        }
        Err(rustls::Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

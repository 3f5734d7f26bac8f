//! How webhooks prove who they are, and how it is said that they do not.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// TLS that trusts the authorities of `ca_bundle` (PEM in base64), or those of the machine if there is none.
pub(crate) fn client_config(ca_bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(croft_pki::tls::provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots(ca_bundle)?).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The authorities of `ca_bundle`, or those of the machine if there is none.
pub(crate) fn roots(ca_bundle: &str) -> Result<RootCertStore, String> {
    if ca_bundle.is_empty() { of_the_machine() } else { of_bundle(ca_bundle) }
}

fn of_bundle(ca_bundle: &str) -> Result<RootCertStore, String> {
    const UNREADABLE: &str = "unable to load root certificates: unable to parse bytes as PEM block";
    let pem = STANDARD.decode(ca_bundle).map_err(|_| UNREADABLE)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| UNREADABLE)?;
        roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
    }
    if roots.is_empty() { Err(UNREADABLE.to_owned()) } else { Ok(roots) }
}

fn of_the_machine() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("clientConfig has no caBundle, and this machine knows no certificate authorities".to_owned());
    }
    Ok(roots)
}

/// Why a handshake failed, in Go's words where users know them.
pub(crate) fn refusal(error: &io::Error, server_name: &str) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let why = match cause {
        Some(rustls::Error::InvalidCertificate(why)) => why,
        Some(other) => return format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        None => return error.to_string(),
    };
    let why = match why {
        // An authority of the right name with another key is not the right one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        CertificateError::NotValidForName => format!("x509: certificate is not valid for {server_name}"),
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("x509: certificate is valid for {}, not {server_name}", presented.join(", "))
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "x509: certificate has expired or is not yet valid".to_owned(),
        other => format!("x509: {other}"),
    };
    format!("tls: failed to verify certificate: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_is_none_is_named() {
        for bundle in ["!", "aGVsbG8="] {
            let why = client_config(bundle).expect_err(bundle);
            assert_eq!(why, "unable to load root certificates: unable to parse bytes as PEM block");
        }
    }

    #[test]
    fn refusals_are_in_gos_words() {
        let of = |error| refusal(&io::Error::other(rustls::Error::InvalidCertificate(error)), "a.b.svc");
        assert_eq!(
            of(CertificateError::UnknownIssuer),
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        );
        assert_eq!(refusal(&io::ErrorKind::UnexpectedEof.into(), "a"), "EOF");
    }
}

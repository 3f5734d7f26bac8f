//! From a client certificate to a user, by the rules of Kubernetes' x509 authenticator.

use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{X509Certificate, X509Name};

use crate::{Error, Result, ca, tls, twin};

/// A user's uid may be carried in the subject under this number of Kubernetes' own.
const UID: &str = "1.3.6.1.4.1.57683.2";
pub(crate) const COMMON_NAME: &str = "2.5.4.3";
pub(crate) const ORGANIZATION: &str = "2.5.4.10";

/// Who a certificate belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The common name.
    pub user: String,
    /// The organizations, in order.
    pub groups: Vec<String>,
    /// Empty if the certificate names none.
    pub uid: String,
    /// `X509SHA256=` and the certificate's fingerprint, for `authentication.kubernetes.io/credential-id`.
    pub credential_id: String,
    /// What tells this certificate from others.
    pub marks: Marks,
}

/// What a certificate can be named by, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// SHA-256 of the whole certificate.
    pub fingerprint: String,
    /// The same of its [twin]: whoever has the one can make the other.
    pub twin: Option<String>,
    /// Without leading zeros.
    pub serial: String,
    /// When it was made: our authority's are good from a little before.
    pub issued: Timestamp,
}

impl Marks {
    fn of(der: &[u8], cert: &X509Certificate<'_>) -> Self {
        let serial = hex(cert.raw_serial());
        let from = Timestamp::from_second(cert.validity().not_before.timestamp()).unwrap_or(Timestamp::MIN);
        let fingerprint = |der: &[u8]| hex(&Sha256::digest(der));
        Self {
            fingerprint: fingerprint(der),
            twin: twin::of(der).map(|twin| fingerprint(&twin)),
            serial: serial.trim_start_matches('0').to_owned(),
            issued: from.checked_add(ca::BACKDATE).unwrap_or(from),
        }
    }
}

/// What there is to know about a certificate whoever signed it: its marks, its common name, and when it ends.
pub fn describe(pem: &[u8]) -> Option<(Marks, String, Timestamp)> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
    let user = attributes(cert.subject(), COMMON_NAME).pop().unwrap_or_default();
    let end = Timestamp::from_second(cert.validity().not_after.timestamp()).ok()?;
    Some((Marks::of(&der, &cert), user, end))
}

/// Why a certificate does not identify anybody. All of them end in a 401 unless other credentials do better.
#[derive(Debug, thiserror::Error)]
pub enum ClientCertError {
    #[error("no certificate was presented")]
    Missing,
    #[error("the certificate cannot be read: {0}")]
    Malformed(String),
    #[error("verifying certificate {identifier} failed")]
    Untrusted {
        identifier: String,
        #[source]
        source: rustls::Error,
    },
    /// The certificate is good but names no user. Kubernetes then goes on as if none had been presented.
    #[error("the certificate has no common name")]
    NoCommonName,
    #[error("expected 1 UID, but found multiple: {0:?}")]
    ManyUids(Vec<String>),
    #[error("UID cannot be an empty string")]
    EmptyUid,
}

/// Checks chains up to one of `roots` for use by a client.
pub(crate) fn verifier(roots: Arc<RootCertStore>) -> Result<Arc<dyn ClientCertVerifier>> {
    WebPkiClientVerifier::builder_with_provider(roots, tls::provider())
        .build()
        .map_err(|err| Error::Tls(rustls::Error::General(err.to_string())))
}

/// As in Go, the last common name counts. None without one, or if the certificate cannot be read.
pub(crate) fn common_name(cert: &CertificateDer<'_>) -> Option<String> {
    let (_, cert) = x509_parser::parse_x509_certificate(cert).ok()?;
    attributes(cert.subject(), COMMON_NAME).pop()
}

pub(crate) fn identify(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<Identity, ClientCertError> {
    let (leaf, intermediates) = chain.split_first().ok_or(ClientCertError::Missing)?;
    let (_, cert) =
        x509_parser::parse_x509_certificate(leaf).map_err(|err| ClientCertError::Malformed(err.to_string()))?;
    verifier.verify_client_cert(leaf, intermediates, ca::unix(now)).map_err(|source| ClientCertError::Untrusted {
        identifier: format!("SN={}, SKID={}", cert.tbs_certificate.serial, hex(&Sha256::digest(leaf))),
        source,
    })?;

    // As in Go, the last common name counts.
    let user = attributes(cert.subject(), COMMON_NAME).pop().unwrap_or_default();
    if user.is_empty() {
        return Err(ClientCertError::NoCommonName);
    }
    let mut uids = attributes(cert.subject(), UID);
    let uid = match uids.len() {
        0 => String::new(),
        1 => uids.pop().filter(|uid| !uid.is_empty()).ok_or(ClientCertError::EmptyUid)?,
        _ => return Err(ClientCertError::ManyUids(uids)),
    };
    let marks = Marks::of(leaf, &cert);
    Ok(Identity {
        user,
        groups: attributes(cert.subject(), ORGANIZATION),
        uid,
        credential_id: format!("X509SHA256={}", marks.fingerprint),
        marks,
    })
}

/// The values of one attribute type, in order; those that are not text are left out.
pub(crate) fn attributes(name: &X509Name<'_>, id: &str) -> Vec<String> {
    name.iter_attributes()
        .filter(|attribute| attribute.attr_type().to_id_string() == id)
        .filter_map(|attribute| attribute.as_str().ok().map(str::to_owned))
        .collect()
}

/// Bytes as people write them down: two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

//! Requests for certificates (PKCS #10): read, checked and made.
//!
//! Of a request's subject only the common name and the organizations count, since these are what makes a user; of its
//! extensions only the names. Nothing else gets into a certificate, whatever was asked for.

use std::net::IpAddr;

use rcgen::{CertificateParams, DistinguishedName, SanType, SubjectPublicKeyInfo};
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use crate::client_cert::{COMMON_NAME, ORGANIZATION, attributes};
use crate::subject::{self, Signed};
use crate::{Error, Result, Secret, ca};

/// What a certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Client,
    Server,
}

#[derive(Debug, thiserror::Error)]
pub enum SigningRequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotARequest,
    #[error("the request cannot be read: {0}")]
    Malformed(String),
    #[error("the request is not signed with its own key, or by an algorithm that is not known: {0}")]
    Signature(String),
    #[error("the request's key is of no kind that is signed; use RSA, ECDSA P-256 or P-384, or Ed25519")]
    Key,
}

/// A request whose sender holds the key.
#[derive(Debug)]
pub struct SigningRequest {
    /// The common name.
    pub user: String,
    /// The organizations, in order.
    pub groups: Vec<String>,
    pub dns_names: Vec<String>,
    pub ips: Vec<IpAddr>,
    pub emails: Vec<String>,
    pub uris: Vec<String>,
    key: SubjectPublicKeyInfo,
}

impl SigningRequest {
    /// Reads a request in PEM and checks its signature.
    pub fn parse(pem: &[u8]) -> Result<Self, SigningRequestError> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(|_| SigningRequestError::NotARequest)?;
        let malformed = |err: &dyn std::fmt::Display| SigningRequestError::Malformed(err.to_string());
        let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|err| malformed(&err))?;
        if !rest.is_empty() {
            return Err(malformed(&"trailing data"));
        }
        request.verify_signature().map_err(|err| SigningRequestError::Signature(err.to_string()))?;
        let info = &request.certification_request_info;
        let key = SubjectPublicKeyInfo::from_der(info.subject_pki.raw).map_err(|_| SigningRequestError::Key)?;
        let mut found = Self {
            // As in Go, the last common name counts.
            user: attributes(&info.subject, COMMON_NAME).pop().unwrap_or_default(),
            groups: attributes(&info.subject, ORGANIZATION),
            dns_names: Vec::new(),
            ips: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            key,
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                names.general_names.iter().try_for_each(|name| found.add(name))?;
            }
        }
        Ok(found)
    }

    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), SigningRequestError> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let ip = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                let text = || format!("an IP address of {} bytes", bytes.len());
                self.ips.push(ip.map_err(|_| SigningRequestError::Malformed(text()))?);
            }
            // As upstream, which does not know the others either.
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn key(&self) -> &SubjectPublicKeyInfo {
        &self.key
    }

    /// All the names for a certificate.
    pub(crate) fn names(&self) -> Result<Vec<SanType>, rcgen::Error> {
        let mut names = Vec::new();
        for name in &self.dns_names {
            names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        for name in &self.emails {
            names.push(SanType::Rfc822Name(name.as_str().try_into()?));
        }
        for name in &self.uris {
            names.push(SanType::URI(name.as_str().try_into()?));
        }
        names.extend(self.ips.iter().copied().map(SanType::IpAddress));
        Ok(names)
    }
}

/// A new key, and the request to be `user` in `groups` with it, in PEM.
pub fn make(user: &str, groups: &[String]) -> Result<(String, Secret)> {
    let failed = |source| Error::Issue { subject: format!("user {user:?}"), source };
    let key = ca::generate_key(user)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(failed)?;
    let der = subject::replace(Signed::Request, request.der(), user, groups, &key).map_err(failed)?;
    Ok((ca::pem("CERTIFICATE REQUEST", &der), key.serialize_pem().into()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use rcgen::KeyPair;
    use rustls::pki_types::CertificateDer;

    use super::*;
    use crate::Ca;

    const HOUR: Duration = Duration::from_hours(1);

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_signed_request_is_the_user_it_asked_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), now()).unwrap();
        let groups = ["a".to_owned(), "b c, d".to_owned()];
        let (pem, key) = make("jane", &groups).unwrap();
        let request = SigningRequest::parse(pem.as_bytes()).unwrap();
        let cert = ca.sign(&request, Purpose::Client, true, HOUR, now()).unwrap();
        let chain = [CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
        let identity = ca.verify_client(&chain, now()).unwrap();
        assert_eq!((identity.user.as_str(), &identity.groups[..]), ("jane", &groups[..]));
        let (_, parsed) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
        let key = KeyPair::from_pem(key.reveal()).unwrap();
        assert_eq!(parsed.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
        assert!(!parsed.is_ca());
        let later = now().checked_add(HOUR).unwrap();
        assert_eq!(ca::pem_end(cert.as_bytes()), Some(later));
        assert!(ca.verify_client(&chain, later.checked_add(HOUR).unwrap()).is_err());
        // A certificate for servers is no proof of who a client is.
        let served = ca.sign(&request, Purpose::Server, false, HOUR, now()).unwrap();
        assert!(ca.verify_client(&[CertificateDer::from_pem_slice(served.as_bytes()).unwrap()], now()).is_err());
        // Two of one key can be told apart, also by what is signed.
        let serial = |pem: &str| crate::client_cert::describe(pem.as_bytes()).unwrap().0.serial;
        assert_ne!(serial(&cert), serial(&served));
        assert_eq!(serial(&cert).len(), 32);
    }

    #[test]
    fn a_certificate_does_not_outlive_its_authority() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), now()).unwrap();
        let end = ca::pem_end(ca.cert_pem().as_bytes()).unwrap();
        let request = SigningRequest::parse(make("jane", &[]).unwrap().0.as_bytes()).unwrap();
        let late = end.checked_sub(HOUR).unwrap();
        let cert = ca.sign(&request, Purpose::Client, true, 24 * HOUR, late).unwrap();
        assert_eq!(ca::pem_end(cert.as_bytes()), Some(end));
    }

    #[test]
    fn names_are_read_and_nothing_else_is_believed() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["node.example".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://x".try_into().unwrap()));
        params.subject_alt_names.push(SanType::Rfc822Name("a@b".try_into().unwrap()));
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = SigningRequest::parse(pem.as_bytes()).unwrap();
        assert_eq!(request.dns_names, ["node.example"]);
        assert_eq!(request.ips, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!((&request.uris[..], &request.emails[..]), (&["spiffe://x".to_owned()][..], &["a@b".to_owned()][..]));
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), now()).unwrap();
        let cert = ca.sign(&request, Purpose::Server, true, HOUR, now()).unwrap();
        let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert!(!parsed.is_ca());
        assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 4);
    }

    #[test]
    fn what_is_not_signed_with_its_own_key_is_refused() {
        let (pem, _) = make("jane", &[]).unwrap();
        let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut forged = der.to_vec();
        let place = forged.windows(4).position(|four| four == b"jane").unwrap();
        forged[place] = b'k';
        let forged = ca::pem("CERTIFICATE REQUEST", &forged);
        assert!(matches!(SigningRequest::parse(forged.as_bytes()), Err(SigningRequestError::Signature(_))));
        for (pem, expected) in [
            (String::new(), "PEM block type must be CERTIFICATE REQUEST"),
            (ca::pem("CERTIFICATE", &der), "PEM block type must be CERTIFICATE REQUEST"),
            (ca::pem("CERTIFICATE REQUEST", b"x"), "the request cannot be read"),
        ] {
            let error = SigningRequest::parse(pem.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}

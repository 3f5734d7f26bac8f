//! The certificate authority: one key that everything else hangs on.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
use rustls::server::danger::ClientCertVerifier;

use crate::client_cert::{self, ClientCertError, Identity};
use crate::signing_request::{Purpose, SigningRequest};
use crate::subject::{self, Signed};
use crate::{Error, Result, Secret, file, tls};

const NAME_PREFIX: &str = "croft-ca@";
/// How long the authority's own certificate lasts.
const CA_LIFE: Duration = Duration::from_hours(3650 * 24);
/// How long a serving certificate lasts.
const SERVER_LIFE: Duration = Duration::from_hours(365 * 24);
/// How long the admin's certificate lasts, in the kubeconfig that the server keeps fresh.
pub const ADMIN_LIFE: Duration = Duration::from_hours(365 * 24);
/// Certificates are valid from a little before they are made, for clients whose clock is behind.
pub(crate) const BACKDATE: Duration = Duration::from_mins(5);

/// A new certificate and its private key.
#[derive(Clone, Debug)]
pub struct Issued {
    pub cert_pem: String,
    /// PKCS #8.
    pub key_pem: Secret,
    pub not_after: Timestamp,
}

/// Croft's own certificate authority, kept as `ca.crt` and `ca.key` in one directory.
pub struct Ca {
    cert_pem: String,
    cert_der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
    client_verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("key", &"***").finish_non_exhaustive()
    }
}

impl Ca {
    /// Opens the authority in `dir` (created if missing), making it on the first start. When less than a third of its
    /// certificate's life is left, the certificate is made anew with the same key and name, so that everything it
    /// signed stays good.
    pub fn load_or_create(dir: &Path, now: Timestamp) -> Result<Self> {
        file::create_dir(dir)?;
        let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
        let key = match (file::read(&key_path)?, cert_path.exists()) {
            (Some(pem), _) => KeyPair::from_pem(&pem).map_err(|err| file::damaged(&key_path, &err))?,
            (None, true) => return Err(Error::Incomplete { missing: key_path, present: cert_path }),
            (None, false) => {
                let key = generate_key("the certificate authority")?;
                file::write(&key_path, &key.serialize_pem(), file::PRIVATE)?;
                key
            }
        };
        // The key is written first: a start that died between the two finds a key without a certificate and goes on.
        let Some(pem) = file::read(&cert_path)? else { return Self::certify(key, &cert_path, None, now) };

        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|err| file::damaged(&cert_path, &err))?;
        let (_, cert) = x509_parser::parse_x509_certificate(&der).map_err(|err| file::damaged(&cert_path, &err))?;
        if cert.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(file::damaged(&cert_path, &"it does not belong to the key in ca.key"));
        }
        if !cert.is_ca() {
            return Err(file::damaged(&cert_path, &"it is not a certificate authority"));
        }
        // An authority that somebody else made and put here is theirs to renew.
        let own_name = cert.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        if let Some(name) = own_name.filter(|name| name.starts_with(NAME_PREFIX))
            && due_for_renewal(&der, now)
        {
            return Self::certify(key, &cert_path, Some(name), now);
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|err| file::damaged(&cert_path, &err))?;
        Self::new(pem, der.into_owned(), issuer)
    }

    /// Signs the authority's own certificate and keeps it.
    fn certify(key: KeyPair, path: &Path, name: Option<&str>, now: Timestamp) -> Result<Self> {
        // Distinct for each installation: browsers and trust stores tell authorities apart by name.
        let name = name.map_or_else(|| format!("{NAME_PREFIX}{}", now.as_second()), str::to_owned);
        let mut params = params(common_name(&name), CA_LIFE, now)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params
            .self_signed(&key)
            .map_err(|source| Error::Issue { subject: "the certificate authority".to_owned(), source })?;
        file::write(path, &cert.pem(), file::PUBLIC)?;
        Self::new(cert.pem(), cert.der().clone(), Issuer::new(params, key))
    }

    fn new(cert_pem: String, cert_der: CertificateDer<'static>, issuer: Issuer<'static, KeyPair>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(cert_der.clone()).map_err(Error::Tls)?;
        let roots = Arc::new(roots);
        let client_verifier = client_cert::verifier(Arc::clone(&roots))?;
        Ok(Self { cert_pem, cert_der, issuer, roots, client_verifier })
    }

    /// What clients need to trust this server.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    pub fn cert_der(&self) -> &CertificateDer<'static> {
        &self.cert_der
    }

    /// The trust store that holds this authority and nothing else.
    pub fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }

    /// The API server's serving certificate for these names and addresses, good for a year.
    pub fn issue_server(&self, names: &[String], ips: &[IpAddr], now: Timestamp) -> Result<Issued> {
        self.issue_serving("croft-apiserver", names, ips, now)
    }

    /// A serving certificate for these names and addresses, good for a year.
    pub(crate) fn issue_serving(
        &self,
        subject: &str,
        names: &[String],
        ips: &[IpAddr],
        now: Timestamp,
    ) -> Result<Issued> {
        let failed = |source| Error::Issue { subject: format!("the server {subject}"), source };
        let mut params = params(common_name(subject), SERVER_LIFE, now)?;
        for name in names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(failed)?));
        }
        params.subject_alt_names.extend(ips.iter().copied().map(SanType::IpAddress));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = generate_key(subject)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Issued {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem().into(),
            not_after: not_after(SERVER_LIFE, now)?,
        })
    }

    /// A client certificate: whoever holds it is `user` in `groups`, until `ttl` has passed.
    pub fn issue_client(&self, user: &str, groups: &[String], ttl: Duration, now: Timestamp) -> Result<Issued> {
        let failed = |source| Error::Issue { subject: format!("user {user:?}"), source };
        let mut params = params(common_name(user), ttl, now)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = generate_key(user)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let der = subject::replace(Signed::Certificate, cert.der(), user, groups, self.issuer.key()).map_err(failed)?;
        Ok(Issued {
            cert_pem: pem("CERTIFICATE", &der),
            key_pem: key.serialize_pem().into(),
            not_after: not_after(ttl, now)?,
        })
    }

    /// The certificate that was asked for, in PEM: for the subject, names and key of the request and this one purpose. It
    /// ends after `ttl`, or with the authority's own.
    pub fn sign(
        &self,
        request: &SigningRequest,
        purpose: Purpose,
        may_encipher: bool,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<String> {
        let failed = |source| Error::Issue { subject: format!("{:?}", request.user), source };
        let mut params = params(common_name(&request.user), ttl.min(self.left(now)), now)?;
        params.subject_alt_names = request.names().map_err(failed)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if may_encipher {
            params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        params.extended_key_usages = vec![match purpose {
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let cert = params.signed_by(request.key(), &self.issuer).map_err(failed)?;
        let subject = (&request.user, &request.groups);
        let der = subject::replace(Signed::Certificate, cert.der(), subject.0, subject.1, self.issuer.key());
        Ok(pem("CERTIFICATE", &der.map_err(failed)?))
    }

    /// How long the authority's own certificate still lasts.
    fn left(&self, now: Timestamp) -> Duration {
        let Ok((_, cert)) = x509_parser::parse_x509_certificate(&self.cert_der) else { return Duration::ZERO };
        let seconds = cert.validity().not_after.timestamp() - now.as_second();
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }

    /// Who the holder of this certificate is. `chain` is as the client sent it, its own certificate first.
    pub fn verify_client(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Identity, ClientCertError> {
        client_cert::identify(&*self.client_verifier, chain, now)
    }

    /// Whether this authority signed the serving certificate and it is valid now.
    pub(crate) fn signed_server(&self, cert: &CertificateDer<'_>, now: Timestamp) -> bool {
        let Ok(parsed) = rustls::server::ParsedCertificate::try_from(cert) else { return false };
        let algorithms = tls::provider().signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, &[], unix(now), algorithms)
            .is_ok()
    }
}

/// Less than a third of the certificate's life is left, or none, or it cannot be read.
pub fn due_for_renewal(cert: &CertificateDer<'_>, now: Timestamp) -> bool {
    let Ok((_, cert)) = x509_parser::parse_x509_certificate(cert) else { return true };
    let (start, end) = (cert.validity().not_before.timestamp(), cert.validity().not_after.timestamp());
    end - now.as_second() < (end - start) / 3
}

/// It ends within this time, or cannot be read.
pub fn ends_within(cert: &CertificateDer<'_>, ahead: Duration, now: Timestamp) -> bool {
    let Ok((_, cert)) = x509_parser::parse_x509_certificate(cert) else { return true };
    let left = cert.validity().not_after.timestamp() - now.as_second();
    i64::try_from(ahead.as_secs()).map_or(true, |ahead| left < ahead)
}

/// The same for a certificate in PEM, as in a kubeconfig: it is to be renewed by itself, or ends within the time.
pub fn pem_due_for_renewal(cert_pem: &str, ahead: Duration, now: Timestamp) -> bool {
    let is_due = |der: CertificateDer<'_>| due_for_renewal(&der, now) || ends_within(&der, ahead, now);
    CertificateDer::from_pem_slice(cert_pem.as_bytes()).map_or(true, is_due)
}

/// When a certificate in PEM ends, if it can be read.
pub fn pem_end(cert_pem: &[u8]) -> Option<Timestamp> {
    let der = CertificateDer::from_pem_slice(cert_pem).ok()?;
    let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
    Timestamp::from_second(cert.validity().not_after.timestamp()).ok()
}

pub(crate) fn generate_key(subject: &str) -> Result<KeyPair> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
        .map_err(|source| Error::Issue { subject: subject.to_owned(), source })
}

pub(crate) fn unix(now: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default()))
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let encoded = BASE64_STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        out.extend(line.iter().copied().map(char::from));
        out.push('\n');
    }
    out + &format!("-----END {label}-----\n")
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn params(name: DistinguishedName, life: Duration, now: Timestamp) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let start = now.checked_sub(BACKDATE).map_err(|err| Error::Time(err.to_string()))?;
    params.not_before = epoch + since_epoch(start)?;
    params.not_after = epoch + since_epoch(not_after(life, now)?)?;
    params.distinguished_name = name;
    params.serial_number = Some(serial_number()?);
    Ok(params)
}

/// One that no other certificate has. By itself rcgen makes it of the key, which may have several.
fn serial_number() -> Result<SerialNumber> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    // Positive, and always of the same length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn not_after(life: Duration, now: Timestamp) -> Result<Timestamp> {
    // The calendar of certificates ends with the year 9999; a longer life is cut there.
    const LAST_SECOND: i64 = 253_402_207_200;
    let end = now.checked_add(life).map_or(LAST_SECOND, |end| end.as_second().min(LAST_SECOND));
    Timestamp::from_second(end).map_err(|err| Error::Time(err.to_string()))
}

fn since_epoch(time: Timestamp) -> Result<Duration> {
    let seconds = u64::try_from(time.as_second()).map_err(|_| Error::Time(time.to_string()))?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;

//! The server's own certificate: issued on the first start, and again when its names change or it grows old.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;

use crate::{Ca, Error, Result, ca, file, tls};

/// Every name and address that clients may reach the server by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerNames {
    pub names: BTreeSet<String>,
    pub ips: BTreeSet<IpAddr>,
}

impl ServerNames {
    /// The names every API server answers to (this machine's loopback, the `kubernetes` service), plus those given.
    pub fn with_defaults(names: impl IntoIterator<Item = String>, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        const SERVICE: [&str; 5] = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
        Self {
            // A name that cannot be in a certificate (a host name with an underscore, say) must not stop the server.
            names: SERVICE
                .map(str::to_owned)
                .into_iter()
                .chain(names.into_iter().filter(|name| is_dns_name(name)))
                .collect(),
            // 0.0.0.0 and :: are where to listen, not where anybody connects to.
            ips: loopback.into_iter().chain(ips.into_iter().filter(|ip| !ip.is_unspecified())).collect(),
        }
    }

    /// The alternative names of a certificate; `None` if it cannot be read.
    fn of(cert: &CertificateDer<'_>) -> Option<Self> {
        let (_, cert) = x509_parser::parse_x509_certificate(cert).ok()?;
        let mut found = Self::default();
        for name in &cert.subject_alternative_name().ok()??.value.general_names {
            match name {
                GeneralName::DNSName(name) => _ = found.names.insert((*name).to_owned()),
                GeneralName::IPAddress(bytes) => {
                    let ip = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                    let ip = ip.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()?;
                    found.ips.insert(ip);
                }
                _ => {}
            }
        }
        Some(found)
    }
}

fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The certificate that the server shows, kept as `server.crt` and `server.key` next to the authority.
#[derive(Clone, Debug)]
pub struct ServingCert {
    key: Arc<CertifiedKey>,
}

impl ServingCert {
    /// The kept certificate if it is still good for these names, else a new one. A damaged file is simply replaced:
    /// nothing else depends on it.
    pub fn load_or_issue(dir: &Path, ca: &Ca, names: &ServerNames, now: Timestamp) -> Result<Self> {
        let (cert_path, key_path) = (dir.join("server.crt"), dir.join("server.key"));
        if let (Ok(Some(cert)), Ok(Some(key))) = (file::read(&cert_path), file::read(&key_path))
            && let Ok(kept) = Self::from_pem(&cert, &key)
            && ServerNames::of(kept.cert()).as_ref() == Some(names)
            && ca.signed_server(kept.cert(), now)
            && !kept.due_for_renewal(now)
        {
            return Ok(kept);
        }
        Self::issue(dir, ca, names, now)
    }

    /// A new one in the place of the kept one.
    pub fn issue(dir: &Path, ca: &Ca, names: &ServerNames, now: Timestamp) -> Result<Self> {
        let (cert_path, key_path) = (dir.join("server.crt"), dir.join("server.key"));
        let (names, ips): (Vec<_>, Vec<_>) =
            (names.names.iter().cloned().collect(), names.ips.iter().copied().collect());
        let issued = ca.issue_server(&names, &ips, now)?;
        // A start that dies between the two finds a pair that does not match, and issues again.
        file::write(&key_path, issued.key_pem.reveal(), file::PRIVATE)?;
        file::write(&cert_path, &issued.cert_pem, file::PUBLIC)?;
        Self::from_pem(&issued.cert_pem, issued.key_pem.reveal()).map_err(Error::Tls)
    }

    /// Less than a third of its life is left: call [`Self::load_or_issue`] again and swap the result in.
    pub fn due_for_renewal(&self, now: Timestamp) -> bool {
        ca::due_for_renewal(self.cert(), now)
    }

    pub fn ends_within(&self, ahead: Duration, now: Timestamp) -> bool {
        ca::ends_within(self.cert(), ahead, now)
    }

    pub fn cert(&self) -> &CertificateDer<'static> {
        &self.key.cert[0]
    }

    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// One that was issued elsewhere, with those that vouch for it after it. Fails unless the key belongs to the first.
    pub fn from_pem(cert: &str, key: &str) -> Result<Self, rustls::Error> {
        let broken = |err: rustls::pki_types::pem::Error| rustls::Error::General(err.to_string());
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>().map_err(broken)?;
        if chain.is_empty() {
            return Err(rustls::Error::NoCertificatesPresented);
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(broken)?;
        // Checks that the two belong together.
        let key = CertifiedKey::from_der(chain, key, &tls::provider())?;
        Ok(Self { key: Arc::new(key) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn days(days: i64) -> Timestamp {
        Timestamp::from_second(now().as_second() + days * 86_400).unwrap()
    }

    fn names(extra: &[&str]) -> ServerNames {
        ServerNames::with_defaults(
            extra.iter().map(ToString::to_string),
            ["0.0.0.0".parse().unwrap(), "192.0.2.7".parse().unwrap()],
        )
    }

    #[test]
    fn kept_while_good_and_issued_again_when_not() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), now()).unwrap();
        let load = |names: &ServerNames, at| ServingCert::load_or_issue(dir.path(), &ca, names, at).unwrap();

        let first = load(&names(&["a.example"]), now());
        assert_eq!(ServerNames::of(first.cert()).unwrap(), names(&["a.example"]));
        assert_eq!(load(&names(&["a.example"]), days(200)).cert(), first.cert());
        assert!(!first.due_for_renewal(days(240)));
        assert!(first.due_for_renewal(days(250)));
        let ahead = Duration::from_hours(200 * 24);
        assert!(!first.ends_within(ahead, days(160)) && first.ends_within(ahead, days(170)));
        assert!(!first.ends_within(Duration::ZERO, days(360)));

        let renewed = load(&names(&["a.example"]), days(250));
        assert_ne!(renewed.cert(), first.cert());
        assert!(!renewed.due_for_renewal(days(250)));
        let renamed = load(&names(&["b.example"]), days(250));
        assert_ne!(renamed.cert(), renewed.cert());
    }

    #[test]
    fn damaged_mismatched_or_foreign_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), now()).unwrap();
        let load = || ServingCert::load_or_issue(dir.path(), &ca, &names(&[]), now()).unwrap();
        let other_dir = tempfile::tempdir().unwrap();
        let other = Ca::load_or_create(other_dir.path(), now()).unwrap();
        let foreign = other.issue_server(&["localhost".to_owned()], &[], now()).unwrap();

        let first = load();
        fs::write(dir.path().join("server.crt"), "garbage").unwrap();
        let second = load();
        assert_ne!(first.cert(), second.cert());
        fs::write(dir.path().join("server.key"), foreign.key_pem.reveal()).unwrap();
        let third = load();
        assert_ne!(second.cert(), third.cert());
        ServingCert::load_or_issue(dir.path(), &other, &names(&[]), now()).unwrap();
        assert!(ca.signed_server(load().cert(), now()));
    }

    #[test]
    fn unusable_names_are_left_out() {
        let names = ServerNames::with_defaults(["my_host".to_owned(), String::new(), "good".to_owned()], []);
        assert!(names.names.contains("good"));
        assert!(!names.names.contains("my_host") && !names.names.contains(""));
    }
}

//! Real handshakes over an in-memory pipe.

use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName, pem::PemObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::{Issued, ServerNames};

struct Fixture {
    dir: tempfile::TempDir,
    ca: Ca,
    resolver: Arc<CertResolver>,
    config: Arc<ServerConfig>,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::load_or_create(dir.path(), Timestamp::now()).unwrap();
    let names = ServerNames::with_defaults([], []);
    let serving = ServingCert::load_or_issue(dir.path(), &ca, &names, Timestamp::now()).unwrap();
    let resolver = CertResolver::new(&serving);
    let config = server_config(Arc::clone(&resolver), &ca).unwrap();
    Fixture { dir, ca, resolver, config }
}

/// What both ends know after the handshake: the server's view of the client's chain, the client's view of the server's.
async fn shake(fixture: &Fixture, client: Option<&Issued>) -> Result<(usize, CertificateDer<'static>), std::io::Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(fixture.ca.roots());
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(issued) => {
            let cert = CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(issued.key_pem.reveal().as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (near, far) = tokio::io::duplex(64 * 1024);
    let server = async {
        let mut stream = TlsAcceptor::from(Arc::clone(&fixture.config)).accept(far).await?;
        stream.write_all(b"x").await?;
        stream.flush().await?;
        let (_, session) = stream.get_ref();
        assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
        Ok(session.peer_certificates().map_or(0, <[_]>::len))
    };
    let client = async {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, near).await?;
        stream.read_u8().await?;
        Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned())
    };
    tokio::try_join!(server, client)
}

#[tokio::test]
async fn client_certificate_is_optional() {
    let fixture = fixture();
    let (presented, _) = shake(&fixture, None).await.unwrap();
    assert_eq!(presented, 0);
    let issued = fixture.ca.issue_client("jane", &[], crate::ca::ADMIN_LIFE, Timestamp::now()).unwrap();
    let (presented, _) = shake(&fixture, Some(&issued)).await.unwrap();
    assert_eq!(presented, 1);
}

#[tokio::test]
async fn foreign_certificate_passes_the_handshake_but_needs_its_key() {
    let fixture = fixture();
    let other_dir = tempfile::tempdir().unwrap();
    let other = Ca::load_or_create(other_dir.path(), Timestamp::now()).unwrap();
    let foreign = other.issue_client("jane", &[], crate::ca::ADMIN_LIFE, Timestamp::now()).unwrap();
    assert_eq!(shake(&fixture, Some(&foreign)).await.unwrap().0, 1);

    // A stolen certificate without its key: the signature in the handshake does not fit.
    let verifier = AnyClientCert { provider: provider(), hints: Vec::new() };
    assert!(!verifier.client_auth_mandatory() && verifier.offer_client_auth());
    let stolen = StolenCert::new(&foreign, &other);
    assert!(shake_stolen(&fixture, stolen).await.is_err());
}

#[derive(Debug)]
struct StolenCert(Arc<CertifiedKey>);

impl StolenCert {
    fn new(stolen: &Issued, ca: &Ca) -> Self {
        let cert = CertificateDer::from_pem_slice(stolen.cert_pem.as_bytes()).unwrap();
        let own = ca.issue_client("thief", &[], crate::ca::ADMIN_LIFE, Timestamp::now()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(own.key_pem.reveal().as_bytes()).unwrap();
        let key = provider().key_provider.load_private_key(key).unwrap();
        Self(Arc::new(CertifiedKey::new(vec![cert], key)))
    }
}

impl rustls::client::ResolvesClientCert for StolenCert {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

async fn shake_stolen(fixture: &Fixture, stolen: StolenCert) -> std::io::Result<()> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(fixture.ca.roots())
        .with_client_cert_resolver(Arc::new(stolen));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let acceptor = TlsAcceptor::from(Arc::clone(&fixture.config));
    let name = ServerName::try_from("localhost").unwrap();
    let (accepted, _connected) =
        tokio::join!(acceptor.accept(far), TlsConnector::from(Arc::new(config)).connect(name, near));
    accepted.map(|_| ())
}

#[tokio::test]
async fn swapped_certificate_is_shown_to_new_connections() {
    let fixture = fixture();
    let (_, first) = shake(&fixture, None).await.unwrap();
    let names = ServerNames::with_defaults(["new.example".to_owned()], []);
    let renewed = ServingCert::load_or_issue(fixture.dir.path(), &fixture.ca, &names, Timestamp::now()).unwrap();
    fixture.resolver.swap(&renewed);
    let (_, second) = shake(&fixture, None).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(&second, renewed.cert());
}

//! Who somebody says they are: tokens, certificates, kubeconfigs, keys.

use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use croft_api::harvester::ssh_key::PublicKey;
use croft_apiserver::fuzzing::users_of_claims;
use croft_pki::signing_request::Purpose;
use croft_pki::{
    BearerToken, Ca, Jws, KeySet, Kubeconfig, ServingCert, SigningAlgorithm, SigningRequest, TokenSigner, ca,
};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::Duration;

use crate::{split, text};

/// A token is its parts and nothing else.
pub(crate) fn bearer_token(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(token) = BearerToken::parse(text) {
        assert_eq!(token.reveal().reveal(), text);
        assert!(token.matches(&token.hash()));
        assert!(!format!("{token:?}").contains(text));
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_790_000_000).unwrap_or_default()
}

/// Keys that no input was made with.
static AUTHORITY: LazyLock<(TokenSigner, Ca)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("no directory: {error}"));
    let signer = TokenSigner::load_or_create(directory.path()).unwrap_or_else(|error| panic!("no signer: {error}"));
    let ca = Ca::load_or_create(directory.path(), now()).unwrap_or_else(|error| panic!("no CA: {error}"));
    (signer, ca)
});

/// No token is good that we have not signed: neither whole ones nor claims with any header.
pub(crate) fn jwt(data: &[u8]) {
    let [header, claims] = split(data);
    let signer = &AUTHORITY.0;
    let encode = |data| BASE64_URL_SAFE_NO_PAD.encode(data);
    let made = format!("{}.{}.{}", encode(header), encode(claims), encode(&[7; 64]));
    let given = String::from_utf8_lossy(data);
    for token in [given.as_ref(), made.as_str()] {
        let now = now();
        assert!(signer.verify(token, &[], now).is_err(), "{token}");
        assert!(signer.verify_upload(token, now).is_err(), "{token}");
    }
}

/// No certificate is good that our authority has not signed. DER as it comes in a handshake, PEM as a setting has it.
pub(crate) fn certificate(data: &[u8]) {
    let ca = &AUTHORITY.1;
    let now = now();
    let cert = CertificateDer::from(data.to_vec());
    assert!(ca.verify_client(std::slice::from_ref(&cert), now).is_err());
    assert!(ca.verify_client(&[ca.cert_der().clone(), cert.clone()], now).is_err());
    ca::due_for_renewal(&cert, now);
    ca::ends_within(&cert, Duration::from_hours(1), now);
    let [chain, key] = split(data);
    if let (Some(chain), Some(key)) = (text(chain), text(key)) {
        ca::pem_due_for_renewal(chain, Duration::from_hours(1), now);
        let _ = ServingCert::from_pem(chain, key);
        for cert in CertificateDer::pem_slice_iter(chain.as_bytes()).flatten().take(4) {
            assert!(ca.verify_client(&[cert], now).is_err());
        }
    }
}

/// A request is for whom it names, and so is the certificate that is made of it. PEM as it is sent, DER as it is in there.
pub(crate) fn signing_request(data: &[u8]) {
    let encoded = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        BASE64_STANDARD.encode(data)
    );
    for pem in [data, encoded.as_bytes()] {
        let Ok(request) = SigningRequest::parse(pem) else { continue };
        let (ca, now) = (&AUTHORITY.1, now());
        let Ok(cert) = ca.sign(&request, Purpose::Client, false, Duration::from_hours(1), now) else { continue };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(cert.as_bytes()).flatten().collect();
        // Names that no user may have are refused when the certificate is used.
        if let Ok(identity) = ca.verify_client(&chain, now) {
            assert_eq!((identity.user, identity.groups), (request.user, request.groups));
        }
    }
}

/// No token is good that its issuer has not signed, whatever keys it has; and whoever it names is none of the server's own.
pub(crate) fn issuer_token(data: &[u8]) {
    let [header, claims, keys] = split(data);
    let encode = |data| BASE64_URL_SAFE_NO_PAD.encode(data);
    let made = format!("{}.{}.{}", encode(header), encode(claims), encode(&[7; 64]));
    let keys = KeySet::parse(keys);
    let given = text(header).unwrap_or_default();
    for token in [given, made.as_str()] {
        let Ok(token) = Jws::parse(token) else { continue };
        if let Ok(keys) = &keys {
            for algorithm in SigningAlgorithm::ALL {
                assert!(keys.verify(&token, algorithm).is_err(), "{token:?}");
            }
        }
        users_of_claims(&token.claims);
    }
}

/// A kubeconfig that is read is written so that it reads as the same.
pub(crate) fn kubeconfig(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(config) = Kubeconfig::from_yaml(text) else { return };
    let Ok(written) = config.to_yaml() else { panic!("it cannot be written") };
    let again = Kubeconfig::from_yaml(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(again, config);
}

/// A fingerprint has the same form whatever the key.
pub(crate) fn ssh_key(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(key) = PublicKey::parse(text) else { return };
    assert!(!key.fingerprint().is_empty() && !key.fingerprint().contains(char::is_whitespace));
}

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const DAY: Duration = Duration::from_hours(24);

type Expected = fn(&ClientCertError) -> bool;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn days(days: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() + days * 86_400).unwrap()
}

fn ca() -> (tempfile::TempDir, Ca) {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::load_or_create(dir.path(), now()).unwrap();
    (dir, ca)
}

fn chain(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn made_once_then_loaded() {
    let (dir, first) = ca();
    let second = Ca::load_or_create(dir.path(), days(100)).unwrap();
    assert_eq!(first.cert_pem(), second.cert_pem());
    let mode = fs::metadata(dir.path().join("ca.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!format!("{first:?}").contains("BEGIN"));
}

#[test]
fn client_certificate_names_user_and_all_groups() {
    let (dir, ca) = ca();
    let loaded = Ca::load_or_create(dir.path(), now()).unwrap();
    for names in [groups(&[]), groups(&["system:masters"]), groups(&["a", "b", "a long group name, with a comma", "ü"])]
    {
        for issuer in [&ca, &loaded] {
            let issued = issuer.issue_client("jane", &names, DAY, now()).unwrap();
            let identity = ca.verify_client(&chain(&issued.cert_pem), now()).unwrap();
            assert_eq!((identity.user.as_str(), &identity.groups), ("jane", &names));
            assert_eq!(identity.uid, "");
            assert!(identity.credential_id.starts_with("X509SHA256="), "{}", identity.credential_id);
            KeyPair::from_pem(issued.key_pem.reveal()).unwrap();
        }
    }
}

#[test]
fn untrusted_certificates_are_refused() {
    let (_dir, ca) = ca();
    let (_other_dir, other) = self::ca();
    let good = chain(&ca.issue_client("jane", &[], DAY, now()).unwrap().cert_pem);
    let foreign = chain(&other.issue_client("jane", &[], DAY, now()).unwrap().cert_pem);
    let server = chain(&ca.issue_server(&["localhost".to_owned()], &[], now()).unwrap().cert_pem);
    let mut tampered = good[0].to_vec();
    *tampered.last_mut().unwrap() ^= 1;
    let tampered = vec![CertificateDer::from(tampered)];
    let garbage = vec![CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])];
    let nameless = chain(&ca.issue_client("", &[], DAY, now()).unwrap().cert_pem);

    ca.verify_client(&good, now()).unwrap();
    let untrusted: Expected = |err| matches!(err, ClientCertError::Untrusted { .. });
    let cases: [(&str, &[CertificateDer<'_>], Timestamp, Expected); 8] = [
        ("expired", &good, days(2), untrusted),
        ("not yet valid", &good, days(-1), untrusted),
        ("another authority", &foreign, now(), untrusted),
        ("not for clients", &server, now(), untrusted),
        ("tampered", &tampered, now(), untrusted),
        ("garbage", &garbage, now(), |err| matches!(err, ClientCertError::Malformed(_))),
        ("empty", &[], now(), |err| matches!(err, ClientCertError::Missing)),
        ("nameless", &nameless, now(), |err| matches!(err, ClientCertError::NoCommonName)),
    ];
    for (name, chain, at, expected) in cases {
        let err = ca.verify_client(chain, at).unwrap_err();
        assert!(expected(&err), "{name}: {err:?}");
    }
}

#[test]
fn damaged_files_are_named_and_left_alone() {
    let other = tempfile::tempdir().unwrap();
    Ca::load_or_create(other.path(), now()).unwrap();
    let other_key = fs::read_to_string(other.path().join("ca.key")).unwrap();
    for (file, contents, expected) in [
        ("ca.crt", "nonsense", "ca.crt is damaged"),
        ("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ca.crt is damaged"),
        ("ca.key", "", "ca.key is damaged"),
        ("ca.key", other_key.as_str(), "does not belong to the key in ca.key"),
    ] {
        let (dir, _ca) = ca();
        fs::write(dir.path().join(file), contents).unwrap();
        let err = Ca::load_or_create(dir.path(), now()).unwrap_err().to_string();
        assert!(err.contains(expected), "{err}");
        assert_eq!(fs::read_to_string(dir.path().join(file)).unwrap(), contents);
    }
}

#[test]
fn half_made_authority_is_finished_but_a_lost_key_is_not_replaced() {
    let (dir, _ca) = ca();
    fs::remove_file(dir.path().join("ca.crt")).unwrap();
    Ca::load_or_create(dir.path(), now()).unwrap();
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    let err = Ca::load_or_create(dir.path(), now()).unwrap_err().to_string();
    assert!(err.contains("ca.key is missing but"), "{err}");
}

#[test]
fn old_authority_renews_itself_and_what_it_signed_stays_good() {
    let (dir, old) = ca();
    let client = chain(&old.issue_client("jane", &[], CA_LIFE, now()).unwrap().cert_pem);
    let renewed = Ca::load_or_create(dir.path(), days(2600)).unwrap();
    assert_ne!(renewed.cert_pem(), old.cert_pem());
    renewed.verify_client(&client, days(3000)).unwrap();
    // A client that still trusts the old certificate accepts what the new one signs, for as long as the old one lasts.
    let server = chain(&renewed.issue_server(&["localhost".to_owned()], &[], days(3000)).unwrap().cert_pem);
    assert!(old.signed_server(&server[0], days(3000)));
    assert!(!old.signed_server(&server[0], days(3700)));
}

#[test]
fn endless_life_is_cut_at_the_end_of_the_calendar() {
    let (_dir, ca) = ca();
    let issued = ca.issue_client("jane", &[], Duration::from_secs(u64::MAX), now()).unwrap();
    ca.verify_client(&chain(&issued.cert_pem), now()).unwrap();
}

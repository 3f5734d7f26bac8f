//! The other form of a certificate that is signed by ECDSA.
//!
//! If (r, s) is a signature, so is (r, n - s), with n the order of the curve, and it takes no key to make the one of the other. The
//! two make two certificates, each with a fingerprint of its own, that are equally good. There is no third: how a certificate and
//! a signature are encoded is checked to the letter, and other kinds of signatures have one form each.

use crate::der::{BIT_STRING, INTEGER, SEQUENCE, contents, elements, tlv};

/// The orders of P-256, P-384 and P-521, by size.
const ORDERS: [&[u8]; 3] = [
    &[
        0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6,
        0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ],
    &[
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc7, 0x63, 0x4d, 0x81, 0xf4, 0x37, 0x2d, 0xdf, 0x58, 0x1a, 0x0d, 0xb2,
        0x48, 0xb0, 0xa7, 0x7a, 0xec, 0xec, 0x19, 0x6a, 0xcc, 0xc5, 0x29, 0x73,
    ],
    &[
        0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfa, 0x51, 0x86,
        0x87, 0x83, 0xbf, 0x2f, 0x96, 0x6b, 0x7f, 0xcc, 0x01, 0x48, 0xf7, 0x09, 0xa5, 0xd0, 0x3b, 0xb5, 0xc9, 0xb8,
        0x89, 0x9c, 0x47, 0xae, 0xbb, 0x6f, 0xb7, 0x1e, 0x91, 0x38, 0x64, 0x09,
    ],
];

/// The certificate with the other form of its signature, if that has one.
pub fn of(der: &[u8]) -> Option<Vec<u8>> {
    let outer = elements(contents(der).ok()?).ok()?;
    let [tbs, algorithm, signature] = outer[..] else { return None };
    let [0, pair @ ..] = contents(signature).ok()? else { return None };
    if pair.first() != Some(&SEQUENCE) {
        return None;
    }
    let pair = elements(contents(pair).ok()?).ok()?;
    let [r @ &[INTEGER, ..], s @ &[INTEGER, ..]] = pair[..] else { return None };
    let (r_digits, s) = (digits(contents(r).ok()?), digits(contents(s).ok()?));
    // The curve is the signer's and stands elsewhere. A number that would fit a smaller curve takes more luck than there is.
    let size = r_digits.len().max(s.len());
    let order = ORDERS.into_iter().find(|order| size <= order.len())?;
    let pair = tlv(SEQUENCE, &[r, &integer(&difference(order, s)?)].concat());
    let signature = tlv(BIT_STRING, &[&[0], &pair[..]].concat());
    Some(tlv(SEQUENCE, &[tbs, algorithm, &signature].concat()))
}

/// Without leading zeros.
fn digits(number: &[u8]) -> &[u8] {
    &number[number.iter().take_while(|byte| **byte == 0).count()..]
}

/// A positive one: the first bit is the sign.
fn integer(number: &[u8]) -> Vec<u8> {
    let digits = digits(number);
    let sign = digits.first().is_none_or(|first| first & 0x80 != 0);
    tlv(INTEGER, &[if sign { &[0][..] } else { &[] }, digits].concat())
}

/// `from - number`, unless that is negative.
fn difference(from: &[u8], number: &[u8]) -> Option<Vec<u8>> {
    let mut left = from.to_vec();
    let mut borrow = false;
    for (byte, less) in left.iter_mut().rev().zip(number.iter().rev().chain(std::iter::repeat(&0))) {
        let (once, is_below) = byte.overflowing_sub(*less);
        let (twice, is_below_then) = once.overflowing_sub(u8::from(borrow));
        *byte = twice;
        borrow = is_below || is_below_then;
    }
    (!borrow).then_some(left)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use rcgen::KeyPair;
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::*;
    use crate::Ca;

    const HOUR: Duration = Duration::from_hours(1);

    fn certificate(ca: &Ca, now: Timestamp) -> CertificateDer<'static> {
        let issued = ca.issue_client("jane", &[], HOUR, now).unwrap();
        CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap()
    }

    #[test]
    fn the_twin_of_a_certificate_is_as_good_and_each_is_the_others() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for algorithm in
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ECDSA_P521_SHA512]
        {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("ca.key"), KeyPair::generate_for(algorithm).unwrap().serialize_pem())
                .unwrap();
            let ca = Ca::load_or_create(dir.path(), now).unwrap();
            // Numbers are of all sizes.
            for _ in 0..20 {
                let one = certificate(&ca, now);
                let two = CertificateDer::from(of(&one).unwrap());
                assert_ne!(one, two);
                assert_eq!(of(&two).as_deref(), Some(&one[..]));
                let (one, two) = (ca.verify_client(&[one], now).unwrap(), ca.verify_client(&[two], now).unwrap());
                assert_eq!((&one.user, &one.marks.serial), (&two.user, &two.marks.serial));
                assert_eq!(
                    (Some(&one.marks.fingerprint), Some(&two.marks.fingerprint)),
                    (two.marks.twin.as_ref(), one.marks.twin.as_ref())
                );
            }
        }
    }

    #[test]
    fn other_signatures_have_no_twin() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        std::fs::write(dir.path().join("ca.key"), key.serialize_pem()).unwrap();
        let cert = certificate(&Ca::load_or_create(dir.path(), now).unwrap(), now);
        assert_eq!(of(&cert), None);
        for cut in 0..cert.len() {
            assert_eq!(of(&cert[..cut]), None);
        }
    }

    #[test]
    fn numbers_are_written_as_short_as_can_be() {
        for (from, number, expected) in [
            (&[1, 0][..], &[1][..], &[INTEGER, 2, 0, 0xff][..]),
            (&[1, 0], &[0x81], &[INTEGER, 1, 0x7f]),
            (&[1, 0], &[], &[INTEGER, 2, 1, 0]),
            (&[5], &[5], &[INTEGER, 1, 0]),
        ] {
            assert_eq!(integer(&difference(from, number).unwrap()), expected, "{from:?} - {number:?}");
        }
        assert_eq!(difference(&[1, 0], &[1, 1]), None);
    }
}

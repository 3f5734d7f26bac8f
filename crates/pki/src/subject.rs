//! Subjects with several organizations.
//!
//! A client certificate, or the request for one, carries each of the user's groups as one `O` of its subject. rcgen keeps
//! one value per attribute type, so what it made gets its subject replaced and is signed again.

use rcgen::{KeyPair, SigningKey};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;

/// id-at-organizationName and id-at-commonName, DER-encoded.
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// What has a subject and is signed: the two begin with what is signed, followed by algorithm and signature.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signed {
    Certificate,
    Request,
}

impl Signed {
    /// Where the subject is: in `TBSCertificate` after version, serial number, signature, issuer and validity; in
    /// `CertificationRequestInfo` after the version.
    fn subject_index(self) -> usize {
        match self {
            Self::Certificate => 5,
            Self::Request => 1,
        }
    }
}

/// `der` with the subject `O=group...,CN=user`, signed by `key`.
pub(crate) fn replace(
    signed: Signed,
    der: &[u8],
    user: &str,
    groups: &[String],
    key: &KeyPair,
) -> Result<Vec<u8>, rcgen::Error> {
    let outer = elements(contents(der)?)?;
    let [tbs, algorithm, _signature] = outer[..] else { return Err(rcgen::Error::CouldNotParseCertificate) };
    let subject = encode(user, groups);
    let mut fields = elements(contents(tbs)?)?;
    *fields.get_mut(signed.subject_index()).ok_or(rcgen::Error::CouldNotParseCertificate)? = &subject;

    let tbs = tlv(SEQUENCE, &fields.concat());
    let mut signature = vec![0]; // no unused bits
    signature.extend(key.sign(&tbs)?);
    Ok(tlv(SEQUENCE, &[&tbs, algorithm, &tlv(BIT_STRING, &signature)].concat()))
}

fn encode(user: &str, groups: &[String]) -> Vec<u8> {
    let attribute = |id: &[u8], value: &str| {
        let pair = [tlv(OBJECT_ID, id), tlv(UTF8_STRING, value.as_bytes())].concat();
        tlv(SET, &tlv(SEQUENCE, &pair))
    };
    let mut names: Vec<u8> = groups.iter().flat_map(|group| attribute(ORGANIZATION, group)).collect();
    names.extend(attribute(COMMON_NAME, user));
    tlv(SEQUENCE, &names)
}

/// One DER element: tag, length, value.
fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(value.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = value.len().to_be_bytes();
            let digits: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | u8::try_from(digits.len()).expect("a usize has at most 8 bytes"));
            out.extend(digits);
        }
    }
    out.extend_from_slice(value);
    out
}

/// The elements that follow each other in `der`.
fn elements(mut der: &[u8]) -> Result<Vec<&[u8]>, rcgen::Error> {
    let mut found = Vec::new();
    while !der.is_empty() {
        let (header, length) = measure(der)?;
        let (element, rest) = der.split_at_checked(header + length).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        found.push(element);
        der = rest;
    }
    Ok(found)
}

fn contents(der: &[u8]) -> Result<&[u8], rcgen::Error> {
    let (header, length) = measure(der)?;
    der.get(header..header + length).ok_or(rcgen::Error::CouldNotParseCertificate)
}

/// Lengths of the header and of the value of the element that `der` begins with.
fn measure(der: &[u8]) -> Result<(usize, usize), rcgen::Error> {
    let broken = || rcgen::Error::CouldNotParseCertificate;
    let first = usize::from(*der.get(1).ok_or_else(broken)?);
    if first < 0x80 {
        return Ok((2, first));
    }
    let digits = der.get(2..2 + (first & 0x7f)).filter(|digits| digits.len() <= 4).ok_or_else(broken)?;
    let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
    Ok((2 + digits.len(), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_every_size_survive() {
        for size in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let value = vec![7; size];
            let element = tlv(SEQUENCE, &value);
            assert_eq!(contents(&element).unwrap(), value, "{size}");
            assert_eq!(elements(&element).unwrap(), vec![&element[..]], "{size}");
        }
    }

    #[test]
    fn truncated_der_is_an_error() {
        for der in [&[0x30][..], &[0x30, 0x05, 1], &[0x30, 0x82, 1], &[0x30, 0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1]] {
            assert!(elements(der).is_err(), "{der:?}");
        }
    }
}

//! Subjects with several organizations.
//!
//! A client certificate, or the request for one, carries each of the user's groups as one `O` of its subject. rcgen keeps
//! one value per attribute type, so what it made gets its subject replaced and is signed again.

use rcgen::{KeyPair, SigningKey};

use crate::der::{BIT_STRING, SEQUENCE, contents, elements, tlv};

const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;

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

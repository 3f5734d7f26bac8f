//! Key pairs for logging in to guests, in the files that OpenSSH reads.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{Error, Result, Secret};

/// How keys are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with 2048 bits, which every client knows.
    Rsa,
    Ed25519,
}

/// A new pair.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// PEM, as `ssh -i` takes it.
    pub private_pem: Secret,
    /// A line of `authorized_keys`, without a comment.
    pub public_line: String,
}

/// Makes a pair. RSA takes up to a second: not for a thread that has other things to do.
pub fn generate(algorithm: Algorithm) -> Result<KeyPair> {
    match algorithm {
        Algorithm::Rsa => generate_rsa(),
        Algorithm::Ed25519 => generate_ed25519(),
    }
}

fn generate_rsa() -> Result<KeyPair> {
    let pair = rsa::KeyPair::generate(KeySize::Rsa2048).map_err(|_| Error::KeyPair)?;
    let pkcs8: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| Error::KeyPair)?;
    let private = pkcs1(pkcs8.as_ref()).ok_or(Error::KeyPair)?;
    let (modulus, exponent) = rsa_numbers(pair.public_key().as_ref()).ok_or(Error::KeyPair)?;
    let mut blob = Vec::new();
    for field in [b"ssh-rsa", exponent, modulus] {
        put(&mut blob, field);
    }
    Ok(KeyPair {
        private_pem: pem("RSA PRIVATE KEY", private),
        public_line: format!("ssh-rsa {}", STANDARD.encode(blob)),
    })
}

fn generate_ed25519() -> Result<KeyPair> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(Error::Random)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| Error::KeyPair)?;
    let public = pair.public_key().as_ref();
    let mut blob = Vec::new();
    for field in [b"ssh-ed25519".as_slice(), public] {
        put(&mut blob, field);
    }
    let mut check = [0; 4];
    getrandom::fill(&mut check).map_err(Error::Random)?;
    Ok(KeyPair {
        private_pem: pem("OPENSSH PRIVATE KEY", &openssh_ed25519(&seed, public, &blob, check)),
        public_line: format!("ssh-ed25519 {}", STANDARD.encode(blob)),
    })
}

/// OpenSSH's own format (its PROTOCOL.key), not encrypted.
fn openssh_ed25519(seed: &[u8], public: &[u8], blob: &[u8], check: [u8; 4]) -> Vec<u8> {
    let mut private = [check, check].concat();
    for field in [b"ssh-ed25519".as_slice(), public, &[seed, public].concat(), b""] {
        put(&mut private, field);
    }
    private.extend((1..).take(private.len().next_multiple_of(8) - private.len()));
    let mut file = b"openssh-key-v1\0".to_vec();
    for field in [b"none".as_slice(), b"none", b""] {
        put(&mut file, field);
    }
    file.extend(1_u32.to_be_bytes());
    put(&mut file, blob);
    put(&mut file, &private);
    file
}

/// A byte string after its length. Keys are far shorter than what a length can say.
fn put(into: &mut Vec<u8>, field: &[u8]) {
    into.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
    into.extend(field);
}

fn pem(label: &str, der: &[u8]) -> Secret {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    Secret::new(format!("{pem}-----END {label}-----\n"))
}

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;

/// The content of the first element of DER, if it has this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [found, first, rest @ ..] = der else { return None };
    if *found != tag {
        return None;
    }
    let (length, rest) = if first & 0x80 == 0 {
        (usize::from(*first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (bytes.iter().try_fold(0_usize, |length, byte| length.checked_mul(256)?.checked_add(usize::from(*byte)))?, rest)
    };
    rest.split_at_checked(length)
}

/// What PKCS#8 wraps: version, algorithm, and the key itself.
fn pkcs1(pkcs8: &[u8]) -> Option<&[u8]> {
    let (content, _) = element(pkcs8, SEQUENCE)?;
    let (_, content) = element(content, INTEGER)?;
    let (_, content) = element(content, SEQUENCE)?;
    Some(element(content, OCTETS)?.0)
}

/// Modulus and exponent, as positive numbers are written in SSH too.
fn rsa_numbers(public: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, _) = element(public, SEQUENCE)?;
    let (modulus, content) = element(content, INTEGER)?;
    Some((modulus, element(content, INTEGER)?.0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn pairs_are_new_each_time_and_hide_their_secret() {
        for algorithm in [Algorithm::Rsa, Algorithm::Ed25519] {
            let (one, other) = (generate(algorithm).unwrap(), generate(algorithm).unwrap());
            assert_ne!(one.public_line, other.public_line);
            assert!(!format!("{one:?}").contains("PRIVATE KEY"));
        }
    }

    /// OpenSSH finds the public key in the private one.
    #[test]
    fn openssh_reads_what_is_made() {
        if std::process::Command::new("ssh-keygen").arg("-?").output().is_err() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for algorithm in [Algorithm::Rsa, Algorithm::Ed25519] {
            let pair = generate(algorithm).unwrap();
            let path = dir.path().join(format!("{algorithm:?}"));
            std::fs::write(&path, pair.private_pem.reveal()).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let output = std::process::Command::new("ssh-keygen").args(["-y", "-f"]).arg(&path).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), pair.public_line);
        }
    }
}

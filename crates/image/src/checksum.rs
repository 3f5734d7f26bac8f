//! Checksums that users give, and those that registries name things by.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256, Sha512};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Sha256,
    Sha512,
}

/// `sha512:<hex>`; also understood without the prefix, by its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the checksum is neither a SHA-512 (128 hexadecimal digits) nor a SHA-256 (64)")]
pub struct ChecksumError;

impl Checksum {
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        };
        write!(f, "{prefix}:{}", self.hex)
    }
}

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Self, ChecksumError> {
        let text = text.trim();
        let (prefix, hex) = text.split_once(':').unwrap_or(("", text));
        let algorithm = match (prefix.to_ascii_lowercase().as_str(), hex.len()) {
            ("" | "sha256", 64) => Algorithm::Sha256,
            ("" | "sha512", 128) => Algorithm::Sha512,
            _ => return Err(ChecksumError),
        };
        if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ChecksumError);
        }
        Ok(Self { algorithm, hex: hex.to_ascii_lowercase() })
    }
}

/// A checksum being taken.
#[derive(Clone, Debug)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(data),
            Self::Sha512(hasher) => hasher.update(data),
        }
    }

    pub(crate) fn finish(self) -> Checksum {
        match self {
            Self::Sha256(hasher) => Checksum { algorithm: Algorithm::Sha256, hex: hex(&hasher.finalize()) },
            Self::Sha512(hasher) => Checksum { algorithm: Algorithm::Sha512, hex: hex(&hasher.finalize()) },
        }
    }
}

/// The SHA-256 of a small document.
pub(crate) fn sha256(data: &[u8]) -> Checksum {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    hasher.update(data);
    hasher.finish()
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_known_by_their_prefix_or_length() {
        let (short, long) = ("AB".repeat(32), "0f".repeat(64));
        for (text, expected) in [
            (short.clone(), Some(format!("sha256:{}", "ab".repeat(32)))),
            (long.clone(), Some(format!("sha512:{long}"))),
            (format!("sha512:{long}"), Some(format!("sha512:{long}"))),
            (format!(" SHA256:{short}\n"), Some(format!("sha256:{}", "ab".repeat(32)))),
            (format!("sha512:{short}"), None),
            (format!("md5:{short}"), None),
            ("g".repeat(64), None),
            (String::new(), None),
        ] {
            assert_eq!(text.parse::<Checksum>().ok().map(|sum| sum.to_string()), expected, "{text}");
        }
    }

    #[test]
    fn the_hash_is_the_well_known_one() {
        assert_eq!(sha256(b"abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

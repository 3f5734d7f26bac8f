//! Public keys as OpenSSH writes them.
//!
//! A line of `authorized_keys` is read as OpenSSH reads it: options may come first, a comment last. What the key holds is
//! checked down to its numbers, because a key that a guest cannot read locks its owner out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

/// Longer lines are no keys; an RSA key of 16384 bits takes 2.8 KiB.
const LONGEST_LINE: usize = 16 << 10;
const SHORTEST_RSA_BITS: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub algorithm: String,
    pub comment: String,
    blob: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("there is no key")]
    Empty,
    #[error("it is longer than any key")]
    TooLong,
    #[error("it is a private key")]
    Private,
    #[error("there is no known algorithm, such as ssh-ed25519, in it")]
    NoAlgorithm,
    #[error("the key is not base64")]
    NotBase64,
    #[error("what the key holds does not fit its algorithm")]
    Malformed,
    #[error("an RSA key of fewer than {SHORTEST_RSA_BITS} bits is not safe")]
    Short,
}

impl PublicKey {
    /// The first key of the text; lines that are empty or comments are passed over.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.len() > LONGEST_LINE {
            return Err(KeyError::TooLong);
        }
        if text.contains("PRIVATE KEY-----") {
            return Err(KeyError::Private);
        }
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| !line.is_empty() && !line.starts_with('#')).ok_or(KeyError::Empty)?;
        Self::parse_line(line).or_else(|error| match after_options(line) {
            Some(rest) if error == KeyError::NoAlgorithm => Self::parse_line(rest),
            _ => Err(error),
        })
    }

    fn parse_line(line: &str) -> Result<Self, KeyError> {
        let mut words = line.splitn(3, [' ', '\t']);
        let algorithm = words.next().unwrap_or_default();
        if !is_known(algorithm) {
            return Err(KeyError::NoAlgorithm);
        }
        let rest = words.next().into_iter().chain(words.next()).collect::<Vec<_>>().join(" ");
        let (key, comment) = rest.trim_start().split_once([' ', '\t']).unwrap_or((rest.trim_start(), ""));
        let blob = STANDARD.decode(key).map_err(|_| KeyError::NotBase64)?;
        check(algorithm, &blob)?;
        Ok(Self { algorithm: algorithm.to_owned(), comment: comment.trim().to_owned(), blob })
    }

    /// MD5, as older versions of OpenSSH and Harvester show it.
    pub fn fingerprint(&self) -> String {
        Md5::digest(&self.blob).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
    }
}

/// What follows the first blank that is not in quotes.
fn after_options(line: &str) -> Option<&str> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (index, letter) in line.char_indices() {
        match letter {
            '"' if !is_escaped => is_quoted = !is_quoted,
            ' ' | '\t' if !is_quoted => return Some(line[index..].trim_start()),
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    None
}

fn is_known(algorithm: &str) -> bool {
    matches!(
        algorithm,
        "ssh-rsa"
            | "ssh-dss"
            | "ssh-ed25519"
            | "ecdsa-sha2-nistp256"
            | "ecdsa-sha2-nistp384"
            | "ecdsa-sha2-nistp521"
            | "sk-ssh-ed25519@openssh.com"
            | "sk-ecdsa-sha2-nistp256@openssh.com"
    )
}

fn check(algorithm: &str, blob: &[u8]) -> Result<(), KeyError> {
    let mut fields = Fields(blob);
    if fields.next()? != algorithm.as_bytes() {
        return Err(KeyError::Malformed);
    }
    match algorithm {
        "ssh-rsa" => {
            fields.number()?;
            if fields.number()? < SHORTEST_RSA_BITS {
                return Err(KeyError::Short);
            }
        }
        "ssh-dss" => {
            for _ in 0..4 {
                fields.number()?;
            }
        }
        "ssh-ed25519" => fields.of_length(32)?,
        "sk-ssh-ed25519@openssh.com" => {
            fields.of_length(32)?;
            fields.next()?;
        }
        _ => {
            let curve = fields.next()?;
            let length = match curve {
                b"nistp256" => 65,
                b"nistp384" => 97,
                b"nistp521" => 133,
                _ => return Err(KeyError::Malformed),
            };
            // `ecdsa-sha2-<curve>`, and the same for keys on a token.
            let name = algorithm.trim_end_matches("@openssh.com").rsplit('-').next().unwrap_or_default();
            if name.as_bytes() != curve {
                return Err(KeyError::Malformed);
            }
            let point = fields.next()?;
            if point.len() != length || point[0] != 4 {
                return Err(KeyError::Malformed);
            }
            if algorithm.starts_with("sk-") {
                fields.next()?;
            }
        }
    }
    if fields.0.is_empty() { Ok(()) } else { Err(KeyError::Malformed) }
}

/// Byte strings, each after its length.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a [u8], KeyError> {
        let (length, rest) = self.0.split_first_chunk::<4>().ok_or(KeyError::Malformed)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| KeyError::Malformed)?;
        let (field, rest) = rest.split_at_checked(length).ok_or(KeyError::Malformed)?;
        self.0 = rest;
        Ok(field)
    }

    /// How many bits a positive number has.
    fn number(&mut self) -> Result<usize, KeyError> {
        let field = self.next()?;
        match field {
            [] => Err(KeyError::Malformed),
            [first, ..] if first & 0x80 != 0 => Err(KeyError::Malformed),
            [0, rest @ ..] => Ok(rest.len() * 8),
            [first, rest @ ..] => Ok(rest.len() * 8 + 8 - usize::try_from(first.leading_zeros()).unwrap_or(0)),
        }
    }

    fn of_length(&mut self, length: usize) -> Result<(), KeyError> {
        if self.next()?.len() == length { Ok(()) } else { Err(KeyError::Malformed) }
    }
}

#[cfg(test)]
mod tests;

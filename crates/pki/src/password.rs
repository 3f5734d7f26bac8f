//! Passwords of local users: argon2id, kept as PHC strings.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

use crate::{Error, Result, Secret};

/// Letters and digits that cannot be mistaken for one another when read or typed: no i, l, o, 0, 1.
const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";

/// The hash to keep. Takes tens of milliseconds and 19 MiB: keep it off the async workers.
pub fn hash(password: &str) -> Result<String> {
    let hash = Argon2::default().hash_password(password.as_bytes()).map_err(|err| Error::Hash(err.to_string()))?;
    Ok(hash.to_string())
}

/// Whether the password is the one that was hashed. A hash that cannot be read fits no password.
pub fn verify(password: &str, hash: &str) -> bool {
    // The parameters are those in the hash, so hashes made with others stay good.
    PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// A random password to be read from a screen and typed: four groups of five characters, 99 bits.
pub fn generate() -> Result<Secret> {
    let groups = (0..4).map(|_| random_text(5)).collect::<Result<Vec<_>>>()?;
    Ok(Secret::new(groups.join("-")))
}

/// Characters of the readable alphabet, each equally likely.
pub(crate) fn random_text(length: usize) -> Result<String> {
    // Bytes at or above the last multiple of the alphabet's size would favour its first letters.
    const LIMIT: usize = 256 - 256 % ALPHABET.len();
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(Error::Random)?;
        let fair = bytes.into_iter().map(usize::from).filter(|byte| *byte < LIMIT);
        text.extend(fair.map(|byte| char::from(ALPHABET[byte % ALPHABET.len()])).take(length - text.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_verifies() {
        let kept = hash("correct horse").unwrap();
        assert!(kept.starts_with("$argon2id$v=19$"), "{kept}");
        assert_ne!(kept, hash("correct horse").unwrap(), "salted");
        assert!(verify("correct horse", &kept));
        for wrong in ["", "correct horse ", "Correct horse"] {
            assert!(!verify(wrong, &kept), "{wrong}");
        }
    }

    #[test]
    fn unreadable_hash_fits_nothing() {
        for kept in ["", "correct horse", "$argon2id$", "$2b$12$abcdefghijklmnopqrstuv"] {
            assert!(!verify("correct horse", kept), "{kept}");
            assert!(!verify("", kept), "{kept}");
        }
    }

    #[test]
    fn generated_passwords_are_readable_and_differ() {
        let password = generate().unwrap();
        assert_eq!(password.reveal().len(), 23);
        assert!(password.reveal().bytes().all(|byte| byte == b'-' || ALPHABET.contains(&byte)));
        assert_ne!(password, generate().unwrap());
    }
}

//! The second factor: codes of authenticator apps, and codes on paper for when the app is lost.
//!
//! TOTP (RFC 6238) with SHA-1, six digits and steps of 30 seconds: what every app knows, and many ignore anything else.

use std::ops::RangeInclusive;

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use jiff::Timestamp;
use qrcodegen::{QrCode, QrCodeEcc};
use subtle::ConstantTimeEq;

use crate::{Error, Result, Secret, password};

const STEP_SECONDS: u64 = 30;
/// Clocks differ, and typing takes time: one step before and one after are good too.
const WINDOW: u64 = 1;
const DIGITS: usize = 6;
const MODULUS: u32 = 1_000_000;
/// As long as the hash, as RFC 4226 recommends.
const KEY_BYTES: usize = 20;
pub const RECOVERY_CODES: usize = 10;
/// Two groups of five characters, 49 bits.
const RECOVERY_GROUP: usize = 5;

/// What an app and the server share, in base32.
#[derive(Clone, Debug)]
pub struct TotpKey(Secret);

impl TotpKey {
    pub fn generate() -> Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(Error::Random)?;
        Ok(Self(Secret::new(BASE32_NOPAD.encode(&bytes))))
    }

    /// One that was kept. If it cannot be read, no code fits it.
    pub fn kept(base32: impl Into<String>) -> Self {
        Self(Secret::new(base32))
    }

    pub fn base32(&self) -> &Secret {
        &self.0
    }

    /// What apps read from a QR code.
    pub fn url(&self, issuer: &str, account: &str) -> Secret {
        let (issuer, account) = (encoded(issuer), encoded(account));
        let key = self.0.reveal();
        Secret::new(format!(
            "otpauth://totp/{issuer}:{account}?secret={key}&issuer={issuer}&algorithm=SHA1&digits={DIGITS}&period={STEP_SECONDS}"
        ))
    }

    /// The step whose code this is, if it is about now and after the one that was used last: a code is good once.
    pub fn step_of(&self, code: &str, now: Timestamp, last_used: Option<u64>) -> Option<u64> {
        let bytes = BASE32_NOPAD.decode(self.0.reveal().as_bytes()).ok().filter(|bytes| !bytes.is_empty())?;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &bytes);
        let is_right = |step: u64| bool::from(code_of(&key, step).as_bytes().ct_eq(code.as_bytes()));
        // All are compared, whichever it is.
        let fitting = steps(now).filter(|step| is_right(*step)).collect::<Vec<_>>();
        fitting.into_iter().find(|step| last_used.is_none_or(|last| *step > last))
    }
}

fn steps(now: Timestamp) -> RangeInclusive<u64> {
    let current = u64::try_from(now.as_second()).unwrap_or_default() / STEP_SECONDS;
    current.saturating_sub(WINDOW)..=current.saturating_add(WINDOW)
}

/// HOTP (RFC 4226) of the step.
fn code_of(key: &hmac::Key, step: u64) -> String {
    let tag = hmac::sign(key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let start = usize::from(tag.last().copied().unwrap_or_default() & 0x0f);
    let number = tag.iter().skip(start).take(4).fold(0_u32, |number, byte| (number << 8) | u32::from(*byte));
    format!("{:0DIGITS$}", (number & 0x7fff_ffff) % MODULUS)
}

/// A part of a URL.
fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A code as somebody typed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Of the app.
    App(Secret),
    /// From the paper.
    Recovery(Secret),
}

impl Typed {
    /// Spaces and dashes are for people, and so are capital letters. `None` if it can be neither.
    pub fn read(text: &str) -> Option<Self> {
        let is_for_people = |c: &char| c.is_whitespace() || *c == '-';
        let plain: String = text.chars().filter(|c| !is_for_people(c)).map(|c| c.to_ascii_lowercase()).collect();
        if plain.len() == DIGITS && plain.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Self::App(Secret::new(plain)));
        }
        let is_recovery = plain.len() == 2 * RECOVERY_GROUP && plain.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_recovery.then(|| Self::Recovery(Secret::new(plain)))
    }
}

/// Codes that are good once each, to be written down; with the hashes to keep. Takes a second.
pub fn recovery_codes() -> Result<Vec<(Secret, String)>> {
    let code = |_| {
        let groups = [password::random_text(RECOVERY_GROUP)?, password::random_text(RECOVERY_GROUP)?];
        let hash = password::hash(&groups.concat())?;
        Ok((Secret::new(groups.join("-")), hash))
    };
    (0..RECOVERY_CODES).map(code).collect()
}

/// The squares of a QR code, row by row, `1` for a dark one, without the margin of four.
pub fn qr(text: &Secret) -> Result<Vec<String>> {
    let code = QrCode::encode_text(text.reveal(), QrCodeEcc::Medium).map_err(|err| Error::Qr(err.to_string()))?;
    let row = |y| (0..code.size()).map(|x| if code.get_module(x, y) { '1' } else { '0' }).collect();
    Ok((0..code.size()).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Appendix B of RFC 6238 has eight digits, of which these are the last six.
    #[test]
    fn codes_are_those_of_the_rfc() {
        let key = TotpKey::kept(BASE32_NOPAD.encode(b"12345678901234567890"));
        for (second, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            let step = u64::try_from(second).unwrap() / STEP_SECONDS;
            assert_eq!(key.step_of(code, at(second), None), Some(step), "{second}");
        }
    }

    /// Appendix D of RFC 4226.
    #[test]
    fn counters_are_those_of_the_rfc() {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"12345678901234567890");
        let expected =
            ["755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"];
        for (step, code) in (0..).zip(expected) {
            assert_eq!(code_of(&key, step), code);
        }
    }

    #[test]
    fn a_code_is_good_once_and_about_its_time() {
        let key = TotpKey::kept(BASE32_NOPAD.encode(b"12345678901234567890"));
        // Of the step that begins at 1111111080.
        let (code, step) = ("081804", 37_037_036);
        for (second, is_good) in [
            (1_111_111_049, false),
            (1_111_111_050, true),
            (1_111_111_109, true),
            (1_111_111_139, true),
            (1_111_111_140, false),
        ] {
            assert_eq!(key.step_of(code, at(second), None), is_good.then_some(step), "{second}");
        }
        let now = at(1_111_111_109);
        assert_eq!(key.step_of(code, now, Some(step - 1)), Some(step));
        for used in [step, step + 1] {
            assert_eq!(key.step_of(code, now, Some(used)), None, "{used}");
        }
        for wrong in ["", "08180", "0818040", "81804", "081805"] {
            assert_eq!(key.step_of(wrong, now, None), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_that_cannot_be_read_fits_nothing() {
        for key in ["", "not base32!", "1"] {
            let key = TotpKey::kept(key);
            for guess in 0..1_000 {
                assert_eq!(key.step_of(&format!("{guess:06}"), at(0), None), None);
            }
        }
    }

    #[test]
    fn keys_are_random_and_hidden() {
        let key = TotpKey::generate().unwrap();
        assert_eq!(key.base32().reveal().len(), 32);
        assert_ne!(key.base32(), TotpKey::generate().unwrap().base32());
        assert_eq!(format!("{key:?}"), "TotpKey(***)");
        let url = TotpKey::kept("ABC").url("Croft on a b", "jane@x");
        assert_eq!(
            url.reveal(),
            "otpauth://totp/Croft%20on%20a%20b:jane%40x?secret=ABC&issuer=Croft%20on%20a%20b&algorithm=SHA1&digits=6&period=30"
        );
    }

    #[test]
    fn codes_are_read_as_people_type_them() {
        let app = |code: &str| Some(Typed::App(Secret::new(code)));
        let recovery = |code: &str| Some(Typed::Recovery(Secret::new(code)));
        for (text, expected) in [
            ("123456", app("123456")),
            (" 123 456\n", app("123456")),
            ("abcde-fgh23", recovery("abcdefgh23")),
            ("ABCDE FGH23", recovery("abcdefgh23")),
            ("", None),
            ("12345", None),
            ("1234567", None),
            ("abcdef", None),
            ("abcde-fgh2é", None),
            ("١٢٣٤٥٦", None),
        ] {
            assert_eq!(Typed::read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn recovery_codes_are_kept_as_hashes() {
        let codes = recovery_codes().unwrap();
        assert_eq!(codes.len(), RECOVERY_CODES);
        let (code, hash) = &codes[3];
        assert_eq!(code.reveal().len(), 11);
        let Some(Typed::Recovery(typed)) = Typed::read(code.reveal()) else { panic!("{code:?}") };
        assert!(password::verify(typed.reveal(), hash) && !password::verify(typed.reveal(), &codes[4].1));
    }

    #[test]
    fn a_qr_code_is_a_square_with_its_three_corners() {
        let rows = qr(&TotpKey::kept("ABC").url("Croft", "jane")).unwrap();
        assert!(rows.iter().all(|row| row.len() == rows.len()));
        assert!(rows[0].starts_with("1111111") && rows[0].ends_with("1111111"));
        assert!(rows[rows.len() - 1].starts_with("1111111") && !rows[rows.len() - 1].ends_with("1111111"));
        assert!(qr(&Secret::new("x".repeat(5_000))).is_err());
    }
}

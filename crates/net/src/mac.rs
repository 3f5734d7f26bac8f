//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no hardware address")]
pub struct BadMac(String);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = BadMac;

    /// Six pairs of hexadecimal digits between colons or dashes.
    fn from_str(text: &str) -> Result<Mac, BadMac> {
        let wrong = || BadMac(text.chars().take(40).collect());
        let separator = if text.contains('-') { '-' } else { ':' };
        let parts: Vec<&str> = text.split(separator).take(7).collect();
        let parts: [&str; 6] = parts.try_into().map_err(|_| wrong())?;
        let mut bytes = [0; 6];
        for (byte, part) in bytes.iter_mut().zip(parts) {
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        Ok(Mac(bytes))
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_read_and_written() {
        assert_eq!("52:54:00:AB:cd:01".parse::<Mac>().unwrap().to_string(), "52:54:00:ab:cd:01");
        assert_eq!("52-54-00-ab-cd-01".parse::<Mac>().unwrap(), Mac([0x52, 0x54, 0, 0xab, 0xcd, 1]));
        for bad in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "+2:54:00:ab:cd:01", "52:54:00:ab:cd:1"] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}

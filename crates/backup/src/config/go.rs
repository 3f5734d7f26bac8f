//! How Go's encoder writes what Rust's would write otherwise.

use serde::de::{Deserialize, Deserializer, Error};

/// A number as a text. Older files have plain numbers.
pub(super) mod number {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Text(String),
        Plain(u64),
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
    pub(in super::super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Plain(number) => Ok(number),
            Number::Text(text) if text.is_empty() => Ok(0),
            Number::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// A text in quotation marks, as a text. Whoever wrote it without is understood too.
pub(super) mod quoted {
    use serde::{Deserialize, Deserializer, Serializer, ser::Error};

    pub(in super::super) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(text).map_err(S::Error::custom)?)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        Ok(serde_json::from_str(&text).unwrap_or(text))
    }
}

pub(super) mod checksum {
    use serde::{Deserializer, Serializer, de::Error, de::Visitor};

    use crate::layout::Checksum;

    struct Text;

    impl Visitor<'_> for Text {
        type Value = Checksum;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a checksum of 64 hexadecimal digits")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Checksum, E> {
            text.parse().map_err(E::custom)
        }
    }

    pub(in super::super) fn serialize<S: Serializer>(checksum: &Checksum, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(checksum)
    }

    /// Without a text of its own for each of what may be millions.
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Checksum, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

/// A list that is null when it is empty.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default).map_err(D::Error::custom)
}

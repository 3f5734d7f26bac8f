//! Text that must not end up in a log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A password, token or private key. `Debug` shows `***`; [`Secret::reveal`] is the only way to the text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_text() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some(***)");
    }
}

//! Where the files are: in the program, or on the disk of whoever develops it.

use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) content: Bytes,
    /// Changes with the content.
    pub(crate) tag: String,
}

pub(crate) trait Files {
    /// By the path below `ui/dist`.
    fn find(&self, name: &str) -> Option<Found>;
}

#[cfg(embedded)]
pub(crate) const FILES: Embedded = Embedded(include!(concat!(env!("OUT_DIR"), "/files.rs")));
#[cfg(not(embedded))]
pub(crate) const FILES: OnDisk<'_> = OnDisk(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/dist"));

/// Name, tag and content of each file, sorted by name.
#[cfg(any(embedded, test))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedded(pub(crate) &'static [(&'static str, &'static str, &'static [u8])]);

#[cfg(any(embedded, test))]
impl Files for Embedded {
    fn find(&self, name: &str) -> Option<Found> {
        let at = self.0.binary_search_by_key(&name, |file| file.0).ok()?;
        let (_, tag, content) = self.0.get(at)?;
        Some(Found { content: Bytes::from_static(content), tag: (*tag).to_owned() })
    }
}

#[cfg(any(not(embedded), test))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnDisk<'a>(pub(crate) &'a str);

#[cfg(any(not(embedded), test))]
impl Files for OnDisk<'_> {
    fn find(&self, name: &str) -> Option<Found> {
        use sha2::{Digest, Sha256};
        // Names come from whoever asks: nothing that leads out of the directory, or to what lies hidden in it.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_name = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain);
        if !name.split('/').all(is_name) {
            return None;
        }
        let content = std::fs::read(std::path::Path::new(self.0).join(name)).ok()?;
        let digest = Sha256::digest(&content);
        let tag = digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        Some(Found { content: content.into(), tag })
    }
}

//! For `croft-fuzz`: layers, challenges, tokens and manifests.

use std::fs::File;

use super::{manifest as manifests, session, tar};

pub(crate) fn take_out(mut data: &[u8], output: File, limit: u64) -> Option<bool> {
    tar::take_out(&mut data, &tar::Wanted::new(None), output, limit).ok()
}

pub(crate) fn challenge(text: &str) {
    session::understood(text);
}

pub(crate) fn token(data: &[u8]) -> Option<Vec<u8>> {
    session::granted(data).ok().map(|value| value.as_bytes().to_vec())
}

pub(crate) fn manifest(data: &[u8]) {
    manifests::understood(data);
}

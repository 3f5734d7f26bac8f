//! For `croft-fuzz`: layers, challenges and manifests.

use std::fs::File;

use super::{manifest as manifests, session, tar};

pub(crate) fn take_out(mut data: &[u8], output: File, limit: u64) -> Option<bool> {
    tar::take_out(&mut data, &tar::Wanted::new(None), output, limit).ok()
}

pub(crate) fn challenge(text: &str) {
    session::understood(text);
}

pub(crate) fn manifest(data: &[u8]) {
    manifests::understood(data);
}

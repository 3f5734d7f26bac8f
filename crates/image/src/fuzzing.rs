//! The readers of images and of what registries answer, for `croft-fuzz` alone: nothing else may use them.

use std::fs::File;
use std::io::{Read, Seek};

use crate::format::{Format, extents};
use crate::oci::fuzzing as oci;
use crate::unpack::{Unpacker, write_out};
use crate::{Algorithm, inspect};

/// Place on the disk, place in the file, size.
pub type Piece = (u64, u64, u64);

/// The size of an image's disk, and where its data is.
pub fn image(file: &File) -> Option<(u64, Vec<Piece>)> {
    let inspected = inspect(file).ok()?;
    let found = if inspected.format == Format::Qcow2 { extents(file, Format::Qcow2) } else { Ok(None) };
    let extents = found.ok().flatten().unwrap_or_default();
    let extents = extents.into_iter().map(|extent| (extent.disk, extent.file, extent.size)).collect();
    Some((inspected.virtual_size, extents))
}

/// How many bytes a packed image has unpacked, into `output` and within `limit`.
pub fn unpack(data: &[u8], output: &File, limit: u64) -> Option<u64> {
    let unpacker = Unpacker::new(data, Some(Algorithm::Sha512)).ok()?;
    let compression = unpacker.compression?;
    let output = output.try_clone().ok()?;
    unpacker.read(|input| write_out(input, output, limit, compression)).ok().map(|(size, _)| size)
}

/// The disk in a layer of a container image, as far as it is one.
pub fn layer(data: &[u8], mut output: File, limit: u64) -> Option<Vec<u8>> {
    let found = oci::take_out(data, output.try_clone().ok()?, limit)?;
    let mut disk = Vec::new();
    output.rewind().ok()?;
    output.read_to_end(&mut disk).ok()?;
    found.then_some(disk)
}

/// The header that a registry's token becomes.
pub fn registry_token(answer: &[u8]) -> Option<Vec<u8>> {
    oci::token(answer)
}

/// A registry's challenge, and its manifest.
pub fn registry(challenge: &str, manifest: &[u8]) {
    oci::challenge(challenge);
    oci::manifest(manifest);
}

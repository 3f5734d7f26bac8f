//! Disks and images that users bring: formats, compression, layers of container images, partitions and file systems.

use std::fs::File;
use std::io;
use std::io::Write;
use std::sync::Arc;

use croft_files::{Content, Disk, FileKind, FileSystem, FileSystemError, partitions as parts_of};
use croft_image::fuzzing as image;
use croft_image::oci::Reference;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::{split, text};

const LIMIT: u64 = 1 << 20;

/// A file in memory.
fn file(data: &[u8]) -> File {
    let file =
        memfd_create("fuzz", MemfdFlags::CLOEXEC).unwrap_or_else(|error| panic!("no memory for a file: {error}"));
    let mut file = File::from(file);
    file.write_all(data).unwrap_or_else(|error| panic!("cannot fill a file in memory: {error}"));
    file
}

/// The parts of an image that are said to hold data lie in it and on the disk, one after the other.
pub(crate) fn image_format(data: &[u8]) {
    let Some((size, extents)) = image::image(&file(data)) else { return };
    assert!(size > 0 && size.is_multiple_of(512));
    let mut end = 0;
    for (disk, file, length) in extents {
        assert!(disk >= end && length > 0 && disk < size, "{disk} {length} of {size}");
        assert!(file + length <= data.len() as u64, "{file} {length} of {}", data.len());
        end = disk + length;
    }
}

/// Whatever is unpacked ends at the limit.
pub(crate) fn unpack(data: &[u8]) {
    if let Some(size) = image::unpack(data, &file(b""), LIMIT) {
        assert!(size <= LIMIT);
    }
}

pub(crate) fn container_layer(data: &[u8]) {
    if let Some(disk) = image::layer(data, file(b""), LIMIT) {
        assert!(disk.len() as u64 <= LIMIT && disk.len() <= data.len());
    }
}

/// Names of images, challenges of registries and their manifests.
pub(crate) fn registry(data: &[u8]) {
    let [reference, challenge, manifest, token] = split(data);
    if let Some(text) = text(reference)
        && let Ok(reference) = text.parse::<Reference>()
    {
        assert!(!reference.host().is_empty() && !reference.host().contains('/'), "{text:?}");
        // A digest says all: the tag beside it is not printed.
        let again = reference.to_string().parse::<Reference>();
        let again = again.unwrap_or_else(|error| panic!("{text:?} printed as {reference}: {error}"));
        assert_eq!(again.to_string(), reference.to_string(), "{text:?}");
        assert_eq!((again.host(), again.digest()), (reference.host(), reference.digest()), "{text:?}");
    }
    image::registry(text(challenge).unwrap_or_default(), manifest);
    // Whatever a token is, it is one header.
    if let Some(header) = image::registry_token(token) {
        assert!(header.starts_with(b"Bearer ") && !header.contains(&b'\n') && !header.contains(&b'\r'), "{header:?}");
    }
}

struct Bytes(Vec<u8>);

impl Disk for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)?.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Parts of a disk lie on it; a file system in one is walked a little.
pub(crate) fn partitions(data: &[u8]) {
    let size = data.len() as u64;
    let disk: Arc<dyn Disk> = Arc::new(Bytes(data.to_vec()));
    let Ok(parts) = parts_of(&disk) else { return };
    assert!(parts.len() <= 256, "{} partitions", parts.len());
    for part in parts {
        assert!(part.start <= size && part.size <= size - part.start, "{part:?} of {size}");
        let content: &Content = &part.content;
        if let Ok(files) = FileSystem::open(part.part(), content) {
            walk(&files);
        }
    }
}

fn walk(files: &FileSystem) {
    let Ok(entries) = files.entries(b"/") else { return };
    for entry in entries.iter().take(16) {
        let path = [b"/", std::os::unix::ffi::OsStrExt::as_bytes(entry.name.as_os_str())].concat();
        match entry.facts.kind {
            FileKind::Regular => drop(read(files, &path)),
            FileKind::Directory => drop(files.entries(&path)),
            FileKind::Symlink => drop((files.link(&path), files.resolve(&path))),
            FileKind::Special => {}
        }
    }
}

/// As much of a file as is worth it: a sparse one may claim to be endless.
fn read(files: &FileSystem, path: &[u8]) -> Result<(), FileSystemError> {
    let mut left = 1_usize << 20;
    let mut buffer = vec![0; 4096];
    let _enough = files.read(path, &mut buffer, |piece| {
        left = left.checked_sub(piece.len()).ok_or(())?;
        Ok::<_, ()>(())
    })?;
    Ok(())
}

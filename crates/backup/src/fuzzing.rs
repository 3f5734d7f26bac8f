//! The readers of a backup target's files, for `croft-fuzz` alone: nothing else may use them.

use bytes::Bytes;

use crate::codec::{Codec, Compression};
use crate::layout;
use crate::lock::LockFile;
use crate::seal::Key;
use crate::{Checksum, Method};

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Lz4];

/// What is packed comes back, and comes back only under its own name.
pub fn pack_and_unpack(data: &[u8], limit: u64) {
    for compression in COMPRESSIONS {
        let codec = Codec::new(compression, None);
        let checksum = codec.checksums(&[data])[0];
        let Ok(packed) = codec.pack(&checksum, data) else { continue };
        let unpack = |checksum| codec.unpack(&[(checksum, packed.clone())], limit).remove(0);
        if data.len() as u64 == limit {
            assert!(unpack(checksum).is_ok_and(|block| *block == *data), "{compression:?}");
        }
        assert!(unpack(Checksum::of(b"another")).is_err(), "{compression:?}");
    }
}

/// What is stored is refused, unless its content has the name.
pub fn unpack(stored: &[u8], limit: u64) {
    for compression in COMPRESSIONS {
        let keys = [None, Key::new(&[7; 32], "fuzz").ok()];
        for codec in keys.map(|key| Codec::new(compression, key)) {
            let name = Checksum::of(b"a block that nobody has");
            let unpacked = codec.unpack(&[(name, Bytes::copy_from_slice(stored))], limit).remove(0);
            assert!(unpacked.is_err(), "{:?}", codec.method());
        }
    }
}

/// The file of a lock, and the names of files.
pub fn lock_and_names(data: &[u8]) {
    if let Ok(lock) = serde_json::from_slice::<LockFile>(data) {
        let written = serde_json::to_vec(&lock).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<LockFile>(&written).ok(), Some(lock));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if layout::check_name(text).is_ok() {
        assert!(!text.contains('/') && text != ".." && text != ".", "{text:?}");
    }
    if let Ok(checksum) = text.parse::<Checksum>() {
        assert_eq!(checksum.to_string(), text.to_ascii_lowercase());
    }
    if let Ok(method) = text.parse::<Method>() {
        assert_eq!(method.to_string().parse(), Ok(method));
    }
    let _ = (layout::backup_name(text), layout::block_checksum(text), layout::is_volume(text));
}

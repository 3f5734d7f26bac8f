//! Disk images: fetched, checked, unpacked, converted. It knows no Kubernetes.
//!
//! Whatever comes in (a URL, an upload, a layer of a container image) ends as one sparse raw file:
//!
//! 1. the bytes go into a part file as they come ([`spool`]), which survives us: a download goes on where it was;
//! 2. at the same time a thread behind it takes the checksum and unpacks xz, gz or zst ([`unpack`]);
//! 3. the format is found by our own reading of headers, and whatever points outside of itself is refused ([`format`]);
//! 4. raw is taken as it is; everything else is converted by `qemu-img`, confined, with the format named ([`convert`]);
//! 5. the result is made durable and renamed into place. Nothing of a failure is left behind.
//!
//! Images, registries and users are not trusted: sizes are bounded, everything that leaves the process has a timeout.
//!
//! Start reading at [`import_url`].

mod checksum;
mod convert;
mod error;
mod export;
mod fetch;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod import;
pub mod oci;
mod pieces;
mod place;
mod sparse;
mod spool;
mod unpack;
mod work;

pub use checksum::{Algorithm, Checksum, ChecksumError};
pub use convert::User;
pub use error::ImportError;
pub use export::export;
pub use fetch::{Credentials, Proxy, Transport};
pub use format::{Format, FormatError, Inspected, inspect};
pub use import::{Imported, Limits, Options, Progress, ProgressFn, import_file, import_stream, import_url};
pub use pieces::{Received, append, import_pieces, received};
pub use place::{grow, next_data, place, preallocate};
pub use sparse::is_zero;
pub use unpack::Compression;
pub use work::{forget, sweep};

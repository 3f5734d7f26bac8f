//! Disks in container images: a registry's HTTP API, and the one file under `/disk` that KubeVirt looks for.
//!
//! Everything is known by its digest and checked against it. Only the disk is taken out of a layer; no path of an archive ever
//! becomes a path of ours.

pub(crate) mod fuzzing;
mod manifest;
mod reference;
mod session;
mod tar;

use std::path::Path;

use reqwest::header::HeaderMap;

pub use manifest::Platform;
pub use reference::{Reference, ReferenceError};

use crate::checksum::Checksum;
use crate::error::ImportError;
use crate::fetch::{Download, Record, Transport};
use crate::import::{Imported, Options, available, import_file};
use crate::spool::{SpoolReader, SpoolWriter};
use crate::unpack::Unpacker;
use crate::work::{WorkFiles, create, publish};
use manifest::Descriptor;
use session::Session;

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("{image} is not the name of an image")]
    Reference {
        image: String,
        #[source]
        source: ReferenceError,
    },
    #[error("cannot reach the registry {registry}")]
    Unreachable {
        registry: String,
        #[source]
        source: ImportError,
    },
    #[error("the registry {registry} wants other credentials")]
    Unauthorized { registry: String },
    #[error("the registry has no {0}")]
    NotFound(String),
    #[error("the registry answered {status}: {message}")]
    Refused { status: String, message: String },
    #[error("the registry gave an answer that makes no sense: {0}")]
    Protocol(String),
    #[error("what came has the digest {actual} instead of {expected}")]
    Digest { expected: String, actual: String },
    #[error("the image has no disk: {0}")]
    NoDisk(String),
    #[error("the layer is not a valid archive: {0}")]
    Archive(String),
    #[error("{0}")]
    Import(#[from] ImportError),
}

/// How registries are spoken to.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// With the credentials.
    pub transport: Transport,
    /// `host[:port]` of those that may speak plain HTTP or have any certificate. Those on this host's loopback always may.
    pub insecure_registries: Vec<String>,
}

/// An image, found but not pulled.
#[derive(Debug)]
pub struct Found {
    /// Of what the reference names, which may be a list of images.
    pub digest: String,
    layers: Vec<Descriptor>,
    session: Session,
}

/// Asks the registry which image that is now.
pub async fn find(reference: &Reference, platform: &Platform, access: &Access) -> Result<Found, PullError> {
    let mut session = Session::open(reference, access).await?;
    let (digest, layers) = manifest::resolve(&mut session, reference, platform).await?;
    Ok(Found { digest, layers, session })
}

impl Found {
    /// Takes the disk out of the image, to `destination`. `path` is where it is in the image; by default the one file in `/disk`.
    pub async fn pull(self, path: Option<&str>, destination: &Path, options: &Options) -> Result<Imported, PullError> {
        let files = LayerFiles::new(options);
        self.find_file(path, &files.0, options).await?;
        let options = Options { checksum: None, ..options.clone() };
        Ok(import_file(&files.0.unpacked, destination, &options).await?)
    }

    /// Takes a file as it is, such as a kernel. Gives its size.
    pub async fn pull_file(self, path: &str, destination: &Path, options: &Options) -> Result<u64, PullError> {
        let files = LayerFiles::new(options);
        self.find_file(Some(path), &files.0, options).await?;
        let (from, to) = (files.0.unpacked.clone(), destination.to_owned());
        let published = tokio::task::spawn_blocking(move || {
            let file = std::fs::File::open(&from).map_err(ImportError::file("open", &from))?;
            publish(&file, &from, &to)?;
            Ok(file.metadata().map_err(ImportError::file("measure", &to))?.len())
        });
        published.await.map_err(|_| ImportError::Panicked)?
    }

    /// Leaves the file as what was unpacked. The topmost layer that has it counts.
    async fn find_file(&self, path: Option<&str>, files: &WorkFiles, options: &Options) -> Result<(), PullError> {
        for layer in self.layers.iter().rev() {
            if self.extract(layer, path, files, options).await? {
                return Ok(());
            }
            files.remove_part();
        }
        Err(PullError::NoDisk(format!("there is no file {}", path.unwrap_or("in /disk"))))
    }

    /// Downloads a layer and takes the disk out as it comes. False if it has none.
    async fn extract(
        &self,
        layer: &Descriptor,
        path: Option<&str>,
        files: &WorkFiles,
        options: &Options,
    ) -> Result<bool, PullError> {
        let url = self.session.blob(&layer.digest)?;
        let (record, offset) = Record::load(&files.record, url.as_str());
        let (mut spool, reader) = SpoolWriter::open(&files.part, offset, Some(record.on_durable())).await?;
        let download = Download {
            client: self.session.client(),
            url: &url,
            headers: self.session.headers(HeaderMap::new()),
            stall: self.session.stall(),
            max_bytes: options.limits.source_bytes,
            available_bytes: available(&options.work_dir)?.saturating_add(spool.position()),
            progress: &*options.progress,
        };
        let transfer = async {
            download.run(&mut spool, &record).await?;
            Ok(spool.finish().await?)
        };
        let expected: Checksum = layer.checksum()?;
        let (output, wanted) = (create(&files.unpacked)?, tar::Wanted::new(path));
        let limit = options.limits.virtual_bytes;
        let follow = async {
            let thread = tokio::task::spawn_blocking(move || take_out(reader, &wanted, output, limit, &expected));
            thread.await.map_err(|_| ImportError::Panicked)?
        };
        let (_, is_found) = tokio::try_join!(transfer, follow)?;
        Ok(is_found)
    }
}

struct LayerFiles(WorkFiles);

impl LayerFiles {
    fn new(options: &Options) -> Self {
        Self(WorkFiles::new(&options.work_dir, &format!("{}-layer", options.key)))
    }
}

impl Drop for LayerFiles {
    fn drop(&mut self) {
        self.0.remove_part();
    }
}

fn take_out(
    reader: SpoolReader,
    wanted: &tar::Wanted,
    output: std::fs::File,
    limit: u64,
    expected: &Checksum,
) -> Result<bool, PullError> {
    let unpacker = Unpacker::new(reader, Some(expected.algorithm())).map_err(|_| ImportError::GivenUp)?;
    let mut found = Ok(false);
    let ((), checksum) = unpacker.read(|input| {
        found = tar::take_out(input, wanted, output, limit);
        Ok(())
    })?;
    // What the archive says counts for nothing before it is known to be the right one.
    if let Some(actual) = checksum.filter(|actual| actual != expected) {
        return Err(PullError::Digest { expected: expected.to_string(), actual: actual.to_string() });
    }
    found
}

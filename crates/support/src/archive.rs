//! A zip file of bounded size, written by a thread of its own.
//!
//! Every file in it has a limit, and so has the whole; what did not fit is remembered, so that the bundle can tell. Texts
//! come through a short queue, so that nothing of size is ever whole in memory.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// How many pieces may wait for the disk.
const QUEUE: usize = 4;

/// In bytes before compression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) file: u64,
    pub(crate) whole: u64,
    pub(crate) files: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("the bundle cannot be written")]
pub(crate) struct ArchiveError(#[source] zip::result::ZipError);

enum Piece {
    File(String),
    Content(Bytes),
}

/// Something that is not in the bundle, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Missing {
    pub(crate) what: String,
    pub(crate) why: String,
}

#[derive(Debug)]
pub(crate) struct Archive {
    limits: Limits,
    pieces: mpsc::Sender<Piece>,
    writing: JoinHandle<Result<u64, ArchiveError>>,
    file: String,
    file_bytes: u64,
    whole_bytes: u64,
    files: usize,
    missing: Vec<Missing>,
}

impl Archive {
    /// Below `root` in the archive everything will be.
    pub(crate) fn create(path: &Path, root: &str, limits: Limits) -> Self {
        let (pieces, received) = mpsc::channel(QUEUE);
        let (path, root) = (path.to_owned(), root.to_owned());
        let writing = tokio::task::spawn_blocking(move || write(&path, &root, received).map_err(ArchiveError));
        Self {
            limits,
            pieces,
            writing,
            file: String::new(),
            file_bytes: 0,
            whole_bytes: 0,
            files: 0,
            missing: Vec::new(),
        }
    }

    /// Begins a file. False if there is no room for it.
    pub(crate) async fn begin(&mut self, name: &str) -> bool {
        if self.whole_bytes >= self.limits.whole || self.files >= self.limits.files {
            self.lacks(name, "the bundle is full");
            return false;
        }
        name.clone_into(&mut self.file);
        self.file_bytes = 0;
        self.files += 1;
        self.send(Piece::File(name.to_owned())).await
    }

    /// Adds to the file. False if it can take no more.
    pub(crate) async fn write(&mut self, content: impl Into<Bytes>) -> bool {
        let mut content = content.into();
        let left = (self.limits.file - self.file_bytes).min(self.limits.whole.saturating_sub(self.whole_bytes));
        let fits = usize::try_from(left).unwrap_or(usize::MAX);
        let is_cut = content.len() > fits;
        if is_cut {
            content.truncate(fits);
            let (name, kept) = (self.file.clone(), self.file_bytes + left);
            self.lacks(&name, &format!("it is larger than there is room for: these are its first {kept} bytes"));
        }
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.file_bytes += size;
        self.whole_bytes += size;
        self.send(Piece::Content(content)).await && !is_cut
    }

    /// A file that is at hand.
    pub(crate) async fn add(&mut self, name: &str, content: impl Into<Bytes>) {
        if self.begin(name).await {
            self.write(content).await;
        }
    }

    pub(crate) fn lacks(&mut self, what: &str, why: &str) {
        self.missing.push(Missing { what: what.to_owned(), why: why.to_owned() });
    }

    pub(crate) fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Adds what must be there however full the archive is, and ends it. Its size.
    pub(crate) async fn finish(self, name: &str, content: impl Into<Bytes>) -> Result<u64, ArchiveError> {
        self.send(Piece::File(name.to_owned())).await;
        self.send(Piece::Content(content.into())).await;
        drop(self.pieces);
        match self.writing.await {
            Ok(written) => written,
            Err(error) => Err(ArchiveError(std::io::Error::other(error).into())),
        }
    }

    /// False if the writer has failed; [`Self::finish`] tells why.
    async fn send(&self, piece: Piece) -> bool {
        self.pieces.send(piece).await.is_ok()
    }
}

/// Until nobody sends any more. A file that is left without its end is not taken for a whole one by anybody.
fn write(path: &Path, root: &str, mut pieces: mpsc::Receiver<Piece>) -> zip::result::ZipResult<u64> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut zip = ZipWriter::new(BufWriter::new(file));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated).unix_permissions(0o600);
    while let Some(piece) = pieces.blocking_recv() {
        match piece {
            Piece::File(name) => zip.start_file(format!("{root}/{name}"), options)?,
            Piece::Content(content) => zip.write_all(&content)?,
        }
    }
    let file: File = zip.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn read(path: &Path, name: &str) -> Option<String> {
        let mut zip = zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
        let mut text = String::new();
        zip.by_name(name).ok()?.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[tokio::test]
    async fn what_does_not_fit_is_left_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zip");
        let mut archive = Archive::create(&path, "top", Limits { file: 10, whole: 25, files: 9 });
        archive.add("small", "12345").await;
        archive.add("large", "1234567890abcdef").await;
        archive.add("rest", "1234567890abcdef").await;
        archive.add("more", "1").await;
        archive.add("late", "1").await;
        let missing: Vec<String> = archive.missing().iter().map(|m| m.what.clone()).collect();
        assert_eq!(missing, ["large", "rest", "more", "late"]);
        let size = archive.finish("last", "always").await.unwrap();
        assert_eq!(size, std::fs::metadata(&path).unwrap().len());
        assert_eq!(read(&path, "top/small").unwrap(), "12345");
        assert_eq!(read(&path, "top/large").unwrap(), "1234567890");
        assert_eq!(read(&path, "top/late"), None);
        assert_eq!(read(&path, "top/last").unwrap(), "always");
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_told() {
        let mut archive =
            Archive::create(Path::new("/proc/none/a.zip"), "top", Limits { file: 10, whole: 25, files: 9 });
        archive.add("a", "1").await;
        assert!(archive.finish("last", "").await.is_err());
    }
}

//! Images that come in pieces, each when its sender can: what came is kept between them, over cuts and restarts.
//!
//! The pieces go one after the other into the same part file that a download has; beside it is noted how long the whole is to
//! be. What [`append`] has acknowledged survives a power cut.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};

use crate::error::ImportError;
use crate::fetch::record::Record;
use crate::import::{Imported, Options, Progress, check_declared, finish, follow};
use crate::spool::SpoolWriter;
use crate::work::WorkFiles;

/// What stands for the URL of a download.
const SOURCE: &str = "upload:";

/// How far an image in pieces is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where the next piece begins.
    pub offset: u64,
    pub length: u64,
}

/// What is here of an image; `None` if no piece of it came.
pub fn received(work_dir: &Path, key: &str) -> Option<Received> {
    let files = WorkFiles::new(work_dir, key);
    let (record, trusted) = Record::load(&files.record, SOURCE);
    let length = record.total()?;
    let here = std::fs::metadata(&files.part).map(|part| part.len()).unwrap_or_default();
    Some(Received { offset: trusted.min(here), length })
}

/// Takes the piece that begins at `from`, of an image of `length` bytes. Gives where the next one begins. What came of a piece
/// that broke off is kept.
pub async fn append<S, E>(
    mut stream: S,
    from: u64,
    length: u64,
    stall: Duration,
    options: &Options,
) -> Result<u64, ImportError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: fmt::Display,
{
    let files = WorkFiles::new(&options.work_dir, &options.key);
    let (record, trusted) = Record::load(&files.record, SOURCE);
    if let Some(known) = record.total().filter(|known| *known != length) {
        return Err(ImportError::Length { known, given: length });
    }
    let is_first = record.total().is_none();
    if is_first && from > 0 {
        return Err(ImportError::Offset { expected: 0, given: from });
    }
    if is_first {
        check_declared(Some(length), options)?;
    }
    let (mut spool, _) = SpoolWriter::open(&files.part, trusted, Some(record.on_durable())).await?;
    let expected = spool.position();
    if expected != from {
        return Err(ImportError::Offset { expected, given: from });
    }
    if is_first {
        record.begin(Some(SOURCE.to_owned()), Some(length));
    }
    let came = receive(&mut stream, &mut spool, length, stall, options).await;
    let offset = spool.finish().await?;
    make_durable(&files.part).await?;
    record.on_durable()(offset);
    came.map(|()| offset)
}

async fn receive<S, E>(
    stream: &mut S,
    spool: &mut SpoolWriter,
    length: u64,
    stall: Duration,
    options: &Options,
) -> Result<(), ImportError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: fmt::Display,
{
    loop {
        let next = tokio::time::timeout(stall, stream.next()).await;
        let next = next.map_err(|_| ImportError::Stalled { from: "the sender".to_owned(), after: stall })?;
        let Some(chunk) = next else { return Ok(()) };
        let received = spool.position();
        let chunk = chunk.map_err(|error| ImportError::Interrupted { received, why: error.to_string() })?;
        let done = received + chunk.len() as u64;
        if done > length {
            return Err(ImportError::Declared { declared: length, actual: done });
        }
        spool.write(chunk).await?;
        (options.progress)(Progress { done, total: Some(length) });
    }
}

async fn make_durable(part: &Path) -> Result<(), ImportError> {
    let path = part.to_owned();
    let flushed = tokio::task::spawn_blocking(move || File::open(&path).and_then(|file| file.sync_data())).await;
    flushed.map_err(|_| ImportError::Panicked)?.map_err(ImportError::file("flush", part))
}

/// Makes the image of its pieces, which must all be here. Unless a later try may go better, nothing of them is left.
pub async fn import_pieces(destination: &Path, options: &Options) -> Result<Imported, ImportError> {
    let files = WorkFiles::new(&options.work_dir, &options.key);
    let made = async {
        let (spool, reader) = SpoolWriter::open(&files.part, u64::MAX, None).await?;
        let (size, behind) = tokio::try_join!(spool.finish(), follow(reader, &files, options))?;
        finish(behind.with_size(size), &files, destination, options).await
    };
    let made = made.await;
    if made.as_ref().err().is_none_or(|error| !error.may_pass()) {
        files.remove_part();
    }
    made
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const STALL: Duration = Duration::from_secs(5);

    async fn send(
        options: &Options,
        from: u64,
        length: u64,
        pieces: &[Result<&'static [u8], ()>],
    ) -> Result<u64, ImportError> {
        let chunks = pieces.iter().map(|piece| match piece {
            Ok(bytes) => Ok(Bytes::from_static(bytes)),
            Err(()) => Err(io::Error::other("cut")),
        });
        append(futures::stream::iter(chunks.collect::<Vec<_>>()), from, length, STALL, options).await
    }

    #[tokio::test]
    async fn pieces_are_kept_over_cuts_and_become_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path(), "a");
        let here = || received(dir.path(), "a");
        assert_eq!(here(), None);
        assert_eq!(send(&options, 0, 1024, &[Ok(&[1; 100])]).await.unwrap(), 100);
        let cut = send(&options, 100, 1024, &[Ok(&[2; 200]), Err(())]).await.unwrap_err();
        assert!(matches!(cut, ImportError::Interrupted { received: 300, .. }), "{cut}");
        assert_eq!(here(), Some(Received { offset: 300, length: 1024 }));

        let refused = send(&options, 200, 1024, &[Ok(&[3; 10])]).await.unwrap_err();
        assert!(matches!(refused, ImportError::Offset { expected: 300, given: 200 }), "{refused}");
        let refused = send(&options, 300, 2048, &[]).await.unwrap_err();
        assert!(matches!(refused, ImportError::Length { known: 1024, given: 2048 }), "{refused}");
        let refused = send(&options, 300, 1024, &[Ok(&[3; 1000])]).await.unwrap_err();
        assert!(matches!(refused, ImportError::Declared { declared: 1024, actual: 1300 }), "{refused}");
        assert_eq!(here(), Some(Received { offset: 300, length: 1024 }), "nothing of them was taken");

        assert_eq!(send(&options, 300, 1024, &[Ok(&[3; 724])]).await.unwrap(), 1024);
        let image = dir.path().join("image.raw");
        let imported = import_pieces(&image, &options).await.unwrap();
        assert_eq!((imported.size, imported.virtual_size), (1024, 1024));
        let whole = [vec![1; 100], vec![2; 200], vec![3; 724]].concat();
        assert!(std::fs::read(&image).unwrap() == whole);
        assert_eq!(here(), None);
    }

    #[tokio::test]
    async fn what_is_no_image_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path(), "a");
        let text: &[u8] = b"<!doctype html><html><body>not found</body></html>";
        send(&options, 0, text.len() as u64, &[Ok(text)]).await.unwrap();
        import_pieces(&dir.path().join("image.raw"), &options).await.unwrap_err();
        assert_eq!(received(dir.path(), "a"), None);
        assert_eq!(send(&options, 0, 10, &[Ok(&[1; 10])]).await.unwrap(), 10, "another file may follow");
    }
}

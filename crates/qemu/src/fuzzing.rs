//! The reader of what QEMU says, for `croft-fuzz` alone: nothing else may use it.

use std::io;

use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use crate::qmp::Qmp;

/// A whole conversation in which QEMU says these bytes and then no more: how many events were told, if it got so far.
pub async fn qmp(said: &[u8]) -> io::Result<Option<usize>> {
    let (ours, mut theirs) = UnixStream::pair()?;
    // What is asked stays in the socket: our own lines are few and short.
    let saying = async {
        let _ = theirs.write_all(said).await;
        let _ = theirs.shutdown().await;
    };
    let listening = async {
        let (qmp, mut events) = Qmp::of_stream(ours).await.ok()?;
        // It may have been answered before it was asked.
        let _ = qmp.status().await;
        let mut told = 0;
        while events.next().await.is_ok() {
            told += 1;
        }
        Some(told)
    };
    Ok(tokio::join!(saying, listening).1)
}

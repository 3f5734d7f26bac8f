//! JSON lines on a unix socket, with descriptors beside them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

pub(super) struct Reader {
    inner: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
}

impl Reader {
    pub(super) fn new(read: OwnedReadHalf) -> Self {
        Reader { inner: BufReader::new(read), line: Vec::new() }
    }

    /// The next message, or None at the end. Lines have no limit: QEMU's own schema is one of 200 KB.
    pub(super) async fn next(&mut self) -> io::Result<Option<Value>> {
        loop {
            self.line.clear();
            if self.inner.read_until(b'\n', &mut self.line).await? == 0 {
                return Ok(None);
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return serde_json::from_slice(&self.line).map(Some).map_err(io::Error::from);
        }
    }
}

pub(super) struct Writer(OwnedWriteHalf);

impl Writer {
    pub(super) fn new(write: OwnedWriteHalf) -> Self {
        Writer(write)
    }

    /// Sends the line; the descriptor goes with its first byte, and our copy of it is closed afterwards.
    pub(super) async fn send(&self, mut line: &[u8], mut fd: Option<OwnedFd>) -> io::Result<()> {
        let stream: &UnixStream = self.0.as_ref();
        while !line.is_empty() {
            let sent = stream.async_io(Interest::WRITABLE, || send_once(stream, line, fd.as_ref())).await?;
            fd = None;
            line = &line[sent..];
        }
        Ok(())
    }
}

fn send_once(stream: &UnixStream, line: &[u8], fd: Option<&OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for the descriptor"));
    }
    // A peer that has gone is an error here and not a signal to the whole process.
    Ok(sendmsg(stream, &[IoSlice::new(line)], &mut control, SendFlags::NOSIGNAL)?)
}

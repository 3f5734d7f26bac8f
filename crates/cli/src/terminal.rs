//! The terminal as a pipe for bytes: what is typed goes on at once, nothing is interpreted.

use std::io::IsTerminal;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncRead, ReadBuf};

/// Ctrl-], as in telnet and virsh.
pub(crate) const ESCAPE: u8 = 0x1d;

/// Raw mode, for as long as it lives. Does nothing where standard input is no terminal.
pub(crate) struct RawMode(Option<Termios>);

impl RawMode {
    pub(crate) fn enter() -> anyhow::Result<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self(None));
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // The terminal may be gone; there is nothing to restore then.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Input that, where it `stays_open`, falls silent at its end instead of ending.
pub(crate) struct Input<R> {
    inner: R,
    stays_open: bool,
    is_silent: bool,
}

impl<R> Input<R> {
    pub(crate) fn new(inner: R, stays_open: bool) -> Self {
        Self { inner, stays_open, is_silent: false }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Input<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.is_silent {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let has_ended = matches!(polled, Poll::Ready(Ok(()))) && buf.filled().len() == before;
        if has_ended && self.stays_open {
            self.is_silent = true;
            return Poll::Pending;
        }
        polled
    }
}

/// Ends at the escape character.
pub(crate) struct UntilEscape<R> {
    pub(crate) inner: R,
    pub(crate) has_ended: bool,
}

impl<R> UntilEscape<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, has_ended: false }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilEscape<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.has_ended {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Some(at) = buf.filled()[before..].iter().position(|byte| *byte == ESCAPE) {
            self.has_ended = true;
            buf.set_filled(before + at);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn input_that_stays_open_falls_silent_at_its_end() {
        let mut read = Vec::new();
        Input::new(&b"ls"[..], false).read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"ls");
        let mut open = Input::new(&b"ls"[..], true);
        let mut buffer = [0; 8];
        assert_eq!(open.read(&mut buffer).await.unwrap(), 2);
        for _ in 0..2 {
            assert!(futures::FutureExt::now_or_never(open.read(&mut buffer)).is_none());
        }
    }

    #[tokio::test]
    async fn typing_ends_at_the_escape_character() {
        for (typed, sent) in [(&b"ls\r\x1dignored"[..], &b"ls\r"[..]), (b"\x1d", b""), (b"no end", b"no end")] {
            let mut read = Vec::new();
            UntilEscape::new(typed).read_to_end(&mut read).await.unwrap();
            assert_eq!(read, sent);
        }
    }
}

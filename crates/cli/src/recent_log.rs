//! The last of what the server has logged, for support bundles.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// Some ten thousand lines.
const KEPT: usize = 2 << 20;

/// Shared by all who log and those who read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentLog(Arc<Mutex<VecDeque<u8>>>);

impl RecentLog {
    /// Whole lines, without the colours that terminals are sent.
    pub(crate) fn text(&self) -> Vec<u8> {
        let kept: Vec<u8> = self.0.lock().iter().copied().collect();
        let start =
            if kept.len() < KEPT { 0 } else { kept.iter().position(|byte| *byte == b'\n').map_or(0, |i| i + 1) };
        without_colours(&kept[start..])
    }
}

impl io::Write for RecentLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock();
        kept.extend(line);
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Leaves out `ESC [ ... m`.
fn without_colours(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte == 0x1b {
            rest.find(|byte| byte.is_ascii_alphabetic());
        } else {
            out.push(*byte);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_end_is_kept_in_whole_lines() {
        let log = RecentLog::default();
        let mut writer = log.clone();
        writer.write_all(b"\x1b[32m INFO\x1b[0m first\n").unwrap();
        assert_eq!(log.text(), b" INFO first\n");
        let line = format!("{}\n", "x".repeat(999));
        for _ in 0..3000 {
            writer.write_all(line.as_bytes()).unwrap();
        }
        let text = log.text();
        assert!(text.len() <= KEPT && text.len() % 1000 == 0, "{}", text.len());
        assert_eq!(&text[..4], b"xxxx");
    }
}

//! The file that is written, and those that it was rotated into: `audit.log`, `audit-2026-01-31T12-00-00.000.log`, …

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use memchr::{memchr, memrchr};

use super::AuditLog;

#[derive(Debug)]
pub(super) struct Rotated {
    path: PathBuf,
    max_bytes: u64,
    max_backups: usize,
    max_age: Duration,
    file: File,
    size: u64,
    /// The last line has no end: what is written next must not become part of it.
    is_torn: bool,
}

impl Rotated {
    pub(super) fn open(path: PathBuf, config: &AuditLog, now: Timestamp) -> io::Result<Self> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let file = open(&path)?;
        let (max_bytes, max_backups, max_age) = (config.max_bytes, config.max_backups, config.max_age);
        let mut rotated = Self { path, max_bytes, max_backups, max_age, file, size: 0, is_torn: false };
        rotated.look()?;
        rotated.prune(now);
        Ok(rotated)
    }

    /// Writes whole lines, in as many files as they need.
    pub(super) fn write(&mut self, lines: &[u8], now: Timestamp) -> io::Result<()> {
        if !self.is_in_place() {
            self.file = open(&self.path)?;
            self.look()?;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            let room = usize::try_from(self.max_bytes.saturating_sub(self.size)).unwrap_or(usize::MAX);
            let mut end = fitting(rest, room);
            if end == 0 && self.size > 0 {
                self.rotate(now)?;
                continue;
            }
            if end == 0 {
                // A line for which no file is large enough gets one of its own.
                end = first_line(rest);
            }
            self.append(&rest[..end])?;
            rest = &rest[end..];
        }
        Ok(())
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = if self.is_torn { self.file.write_all(b"\n") } else { Ok(()) };
        match written.and_then(|()| self.file.write_all(lines)) {
            Ok(()) => {
                self.size += lines.len() as u64 + u64::from(self.is_torn);
                self.is_torn = false;
                Ok(())
            }
            Err(error) => {
                // A part of a line may be there.
                self.is_torn = true;
                Err(error)
            }
        }
    }

    /// Somebody may have moved the file away, as logrotate does.
    fn is_in_place(&self) -> bool {
        let (Ok(here), Ok(ours)) = (std::fs::metadata(&self.path), self.file.metadata()) else { return false };
        (here.dev(), here.ino()) == (ours.dev(), ours.ino())
    }

    fn look(&mut self) -> io::Result<()> {
        self.size = self.file.metadata()?.len();
        let mut last = [b'\n'];
        if self.size > 0 {
            self.file.read_exact_at(&mut last, self.size - 1)?;
        }
        self.is_torn = last != [b'\n'];
        Ok(())
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        // Files are in the order of their names, whatever the clock does.
        let newest = backups(&self.path)?.first().map(|(time, _)| *time);
        let after = |time: Timestamp| time + Duration::from_millis(1);
        let time = newest.map_or(now, |newest| now.max(after(newest)));
        if let Err(error) = std::fs::rename(&self.path, named(&self.path, time)) {
            // A file that is too long is better than none. The next try is due when as much was written again.
            tracing::warn!(%error, path = %self.path.display(), "the audit log could not be rotated");
            self.size = 0;
            return Ok(());
        }
        self.file = open(&self.path)?;
        self.look()?;
        self.prune(now);
        Ok(())
    }

    /// Removes what is too old or too much.
    fn prune(&self, now: Timestamp) {
        let found = backups(&self.path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %self.path.display(), "old audit logs could not be listed");
            Vec::new()
        });
        for (index, (time, path)) in found.iter().enumerate() {
            let is_too_much = self.max_backups > 0 && index >= self.max_backups;
            let is_too_old =
                !self.max_age.is_zero() && now.duration_since(*time).unsigned_abs() > self.max_age && *time < now;
            if (is_too_much || is_too_old)
                && let Err(error) = std::fs::remove_file(path)
            {
                tracing::warn!(%error, path = %path.display(), "an old audit log could not be removed");
            }
        }
    }
}

/// How many bytes the whole lines have that fit into so many.
fn fitting(lines: &[u8], room: usize) -> usize {
    if lines.len() <= room { lines.len() } else { memrchr(b'\n', &lines[..room]).map_or(0, |end| end + 1) }
}

fn first_line(lines: &[u8]) -> usize {
    memchr(b'\n', lines).map_or(lines.len(), |end| end + 1)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// The rotated files and when that was, the newest first.
pub(super) fn backups(path: &Path) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if let Some(time) = time_of(path, &name) {
            found.push((time, path.with_file_name(name)));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = text(path.extension());
    let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
    (format!("{}-", text(path.file_stem())), extension)
}

fn named(path: &Path, time: Timestamp) -> PathBuf {
    let (stem, extension) = parts(path);
    path.with_file_name(format!("{stem}{}{extension}", time.strftime("%Y-%m-%dT%H-%M-%S.%3f")))
}

/// When a file with this name was rotated; None for files that are none of ours.
fn time_of(path: &Path, name: &OsStr) -> Option<Timestamp> {
    let (stem, extension) = parts(path);
    let time = name.to_str()?.strip_prefix(&stem)?.strip_suffix(&extension)?;
    let (day, clock) = time.split_once('T')?;
    format!("{day}T{}Z", clock.replace('-', ":")).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config(max_bytes: u64, max_backups: usize, max_age: Duration) -> AuditLog {
        AuditLog { max_bytes, max_backups, max_age, ..AuditLog::off() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn contents(path: &Path) -> Vec<String> {
        let mut all = vec![std::fs::read_to_string(path).unwrap()];
        all.extend(backups(path).unwrap().iter().map(|(_, path)| std::fs::read_to_string(path).unwrap()));
        all
    }

    #[test]
    fn a_file_that_is_full_is_rotated_and_old_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit/audit.log");
        let mut log = Rotated::open(path.clone(), &config(8, 2, Duration::ZERO), at(0)).unwrap();
        // The clock stands still; the names do not.
        for line in ["a\n", "bb\n", "ccc\n", "dddd\n", "eeeeeeeeeeee\n"] {
            log.write(line.as_bytes(), at(0)).unwrap();
        }
        assert_eq!(contents(&path), ["eeeeeeeeeeee\n", "dddd\n", "ccc\n"]);
        let names: Vec<_> = backups(&path).unwrap().into_iter().map(|(_, path)| path).collect();
        assert!(names[0].ends_with("audit-1970-01-01T00-00-00.002.log"), "{names:?}");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&names[0]), mode(path.parent().unwrap())), (0o600, 0o600, 0o700));
    }

    #[test]
    fn lines_that_come_together_are_spread_over_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut log = Rotated::open(path.clone(), &config(8, 0, Duration::ZERO), at(0)).unwrap();
        log.write(b"a\nbb\n", at(0)).unwrap();
        log.write(b"c\nddddddddddd\neee\nfff\ng\n", at(0)).unwrap();
        assert_eq!(contents(&path), ["g\n", "eee\nfff\n", "ddddddddddd\n", "a\nbb\nc\n"]);
    }

    #[test]
    fn old_files_are_removed_at_the_start_and_others_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut log = Rotated::open(path.clone(), &config(1, 0, Duration::ZERO), at(0)).unwrap();
        for day in 0..3 {
            log.write(format!("{day}\n").as_bytes(), at(day * 86_400)).unwrap();
        }
        std::fs::write(dir.path().join("audit-mine.log"), "").unwrap();
        drop(log);
        Rotated::open(path.clone(), &config(1, 0, Duration::from_hours(36)), at(3 * 86_400)).unwrap();
        assert_eq!(contents(&path), ["2\n", "1\n"]);
        assert!(dir.path().join("audit-mine.log").exists());
    }

    #[test]
    fn a_torn_line_is_ended_before_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        std::fs::write(&path, "a\n{\"half").unwrap();
        let mut log = Rotated::open(path.clone(), &config(1 << 20, 0, Duration::ZERO), at(0)).unwrap();
        log.write(b"b\n", at(0)).unwrap();
        log.write(b"c\n", at(0)).unwrap();
        assert_eq!(contents(&path), ["a\n{\"half\nb\nc\n"]);
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut log = Rotated::open(path.clone(), &config(1 << 20, 0, Duration::ZERO), at(0)).unwrap();
        log.write(b"a\n", at(0)).unwrap();
        std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        log.write(b"b\n", at(0)).unwrap();
        assert_eq!(contents(&path), ["b\n"]);
    }
}

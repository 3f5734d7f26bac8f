use jiff::Timestamp;

use super::super::AuditLog;
use super::super::files::Rotated;
use super::*;

/// Lines of three digits and a newline, four to a file.
fn log(count: usize) -> (tempfile::TempDir, PathBuf, Rotated) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let config = AuditLog { max_bytes: 16, ..AuditLog::off() };
    let mut log = Rotated::open(path.clone(), &config, Timestamp::UNIX_EPOCH).unwrap();
    write(&mut log, 0..count);
    (dir, path, log)
}

fn write(log: &mut Rotated, numbers: std::ops::Range<usize>) {
    for number in numbers {
        log.write(format!("{number:03}\n").as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
    }
}

fn all(_: &[u8]) -> Verdict {
    Verdict::Take
}

fn numbers(page: &Page) -> Vec<usize> {
    page.lines.iter().map(|line| std::str::from_utf8(line).unwrap().parse().unwrap()).collect()
}

#[test]
fn pages_go_back_over_all_files() {
    let (_dir, path, mut log) = log(10);
    let mut seen = Vec::new();
    let mut page = older(&path, None, 3, all).unwrap();
    assert_eq!(numbers(&page), [9, 8, 7]);
    loop {
        seen.extend(numbers(&page));
        let Some(before) = page.before else { break };
        // The file is rotated between pages, and new lines come; the cursor stays where it was.
        let next = 10 + seen.len();
        write(&mut log, next..next + 1);
        page = older(&path, Some(&before.to_string().parse().unwrap()), 3, all).unwrap();
        assert_eq!(page.after, None);
    }
    assert_eq!(seen, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
}

#[test]
fn new_lines_are_told_once_and_without_gaps() {
    let (_dir, path, mut log) = log(3);
    let mut after = older(&path, None, 100, all).unwrap().after.unwrap();
    assert_eq!(numbers(&newer(&path, &after, 100, all).unwrap()), [0_usize; 0]);
    write(&mut log, 3..13);
    let mut seen = Vec::new();
    loop {
        let page = newer(&path, &after, 4, all).unwrap();
        let mut found = numbers(&page);
        if found.is_empty() {
            break;
        }
        found.reverse();
        seen.extend(found);
        after = page.after.unwrap();
    }
    assert_eq!(seen, (3..13).collect::<Vec<_>>());
    write(&mut log, 13..14);
    assert_eq!(numbers(&newer(&path, &after, 4, all).unwrap()), [13]);
}

#[test]
fn a_cursor_whose_file_is_gone_is_no_failure() {
    let (_dir, path, _log) = log(10);
    let gone: Cursor = "0123456789abcdef-4".parse().unwrap();
    let page = older(&path, Some(&gone), 10, all).unwrap();
    assert!(page.lines.is_empty() && page.before.is_none());
    assert_eq!(numbers(&newer(&path, &gone, 3, all).unwrap()), [2, 1, 0]);
}

#[test]
fn work_is_bounded_and_goes_on_from_there() {
    let (_dir, path, _log) = log(12);
    let only_first = |line: &[u8]| if line == b"000" { Verdict::Take } else { Verdict::Skip };
    let mut page = older_within(&path, None, 10, 16, only_first).unwrap();
    let mut turns = 1;
    while page.lines.is_empty() {
        page = older_within(&path, Some(&page.before.unwrap()), 10, 16, only_first).unwrap();
        turns += 1;
    }
    assert!(numbers(&page) == [0] && turns > 1, "{turns} turns");
    assert_eq!(page.before, None);
}

#[test]
fn a_reader_can_say_when_it_is_enough() {
    let (_dir, path, _log) = log(10);
    let judge = |line: &[u8]| if line < b"005".as_slice() { Verdict::Stop } else { Verdict::Take };
    let page = older(&path, None, 100, judge).unwrap();
    assert_eq!((numbers(&page), page.before), (vec![9, 8, 7, 6, 5], None));
}

#[test]
fn torn_and_missing_files_are_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let page = older(&path, None, 10, all).unwrap();
    assert!(page.lines.is_empty() && page.after.is_none());
    std::fs::write(&path, "half").unwrap();
    assert!(older(&path, None, 10, all).unwrap().after.is_none());
    std::fs::write(&path, "001\nhalf").unwrap();
    assert_eq!(numbers(&older(&path, None, 10, all).unwrap()), [1]);
}

#[test]
fn only_cursors_are_cursors() {
    for (text, is_good) in [
        ("0123456789abcdef-0", true),
        ("0123456789abcdef-", false),
        ("0123456789abcdef--1", false),
        ("xyz-1", false),
        ("", false),
    ] {
        assert_eq!(text.parse::<Cursor>().is_ok(), is_good, "{text}");
    }
}

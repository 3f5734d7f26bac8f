//! Writes numbered, checksummed blocks to a device or file, each made durable before it is acknowledged,
//! and verifies them later. What was acknowledged and is not there any more was lost by the storage.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::process::ExitCode;

const USAGE: &str = "usage: verified-write run DEV COUNT [BLOCKS_PER_SYNC]
       verified-write check DEV [ACKNOWLEDGED]

run    writes COUNT blocks of 4 KiB from the start of DEV (0: as many as fit) and prints
       `acknowledged N` each time N blocks are durable (after every block unless told otherwise)
check  verifies what a run left, and prints `verified N`; fails when a block is damaged or missing
       before another that is there, or when fewer than ACKNOWLEDGED blocks are whole";

const SIZE: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"CroftVW1");
/// Linux's O_DIRECT on x86-64: a check must ask the device and not the page cache.
const O_DIRECT: i32 = 0o40000;

/// Aligned, because direct reads demand it.
#[repr(align(4096))]
struct Block([u8; SIZE]);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    run: u64,
    number: u64,
    count: u64,
}

impl Block {
    /// magic, run, number, count, a filling that depends on them, checksum.
    fn new(header: Header) -> Self {
        let mut words = vec![MAGIC, header.run, header.number, header.count];
        let mut state = header.run ^ header.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while words.len() < SIZE / 8 - 1 {
            state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
            words.push(state);
        }
        words.push(checksum(&words));
        let mut bytes = [0; SIZE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Self(bytes)
    }

    fn header(&self) -> Option<Header> {
        let words: Vec<u64> = self
            .0
            .chunks_exact(8)
            .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
            .collect();
        let (sum, rest) = words.split_last()?;
        if rest[0] != MAGIC || *sum != checksum(rest) {
            return None;
        }
        Some(Header { run: rest[1], number: rest[2], count: rest[3] })
    }
}

fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Depends on every word and on its place.
fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0x6372_6f66_7400_0001, |sum, word| mix(sum.rotate_left(5) ^ word))
}

#[derive(Debug)]
enum Failure {
    Usage,
    Io(&'static str, io::Error),
    Damage(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage => f.write_str(USAGE),
            Self::Io(doing, error) => write!(f, "{doing}: {error}"),
            Self::Damage(what) => f.write_str(what),
        }
    }
}

fn run(path: &str, count: u64, batch: u64, out: &mut impl Write) -> Result<u64, Failure> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(!path.starts_with("/dev/"))
        .truncate(false)
        .open(path)
        .map_err(|error| Failure::Io("open", error))?;
    let count = fitting(&mut file, count)?;
    let mut id = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut id))
        .map_err(|error| Failure::Io("read /dev/urandom", error))?;
    let run = u64::from_le_bytes(id);
    for number in 0..count {
        let block = Block::new(Header { run, number, count });
        file.write_all_at(&block.0, number * SIZE as u64).map_err(|error| Failure::Io("write", error))?;
        let done = number + 1;
        if done.is_multiple_of(batch) || done == count {
            file.sync_all().map_err(|error| Failure::Io("fsync", error))?;
            writeln!(out, "acknowledged {done}")
                .and_then(|()| out.flush())
                .map_err(|error| Failure::Io("print", error))?;
        }
    }
    Ok(count)
}

/// The number of blocks to write, which a device limits and a file does not.
fn fitting(file: &mut File, count: u64) -> Result<u64, Failure> {
    let kind = file.metadata().map_err(|error| Failure::Io("stat", error))?.file_type();
    if !kind.is_block_device() {
        return if count == 0 { Err(Failure::Usage) } else { Ok(count) };
    }
    let end = file.seek(SeekFrom::End(0)).map_err(|error| Failure::Io("seek", error))?;
    let fits = end / SIZE as u64;
    match count {
        0 => Ok(fits),
        count if count > fits => Err(Failure::Damage(format!("only {fits} blocks fit on the device"))),
        count => Ok(count),
    }
}

fn check(path: &str, acknowledged: u64) -> Result<u64, Failure> {
    let direct = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path);
    // Not every file system can; then the cache has to do.
    let file = direct.or_else(|_| File::open(path)).map_err(|error| Failure::Io("open", error))?;
    let first = read(&file, 0)?;
    let Some(first) = first else {
        return match acknowledged {
            0 => Err(Failure::Damage("no run was recorded here".into())),
            _ => Err(Failure::Damage(format!("verified 0, but {acknowledged} were acknowledged"))),
        };
    };
    let is_whole = |number| Ok(read(&file, number)? == Some(Header { number, ..first }));
    let mut whole = 0;
    while whole < first.count && is_whole(whole)? {
        whole += 1;
    }
    for number in whole + 1..first.count {
        if is_whole(number)? {
            return Err(Failure::Damage(format!("block {whole} is damaged or lost, but block {number} is there")));
        }
    }
    if whole < acknowledged {
        return Err(Failure::Damage(format!("verified {whole}, but {acknowledged} were acknowledged")));
    }
    Ok(whole)
}

/// The header of a whole block; nothing when it is damaged or past the end.
fn read(file: &File, number: u64) -> Result<Option<Header>, Failure> {
    let mut block = Block([0; SIZE]);
    match file.read_exact_at(&mut block.0, number * SIZE as u64) {
        Ok(()) => Ok(block.header()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(Failure::Io("read", error)),
    }
}

fn command(arguments: &[&str]) -> Result<String, Failure> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| Failure::Usage);
    match arguments {
        ["run", path, count] => run(path, number(count)?, 1, &mut io::stdout()).map(|n| format!("written {n}")),
        ["run", path, count, batch] => {
            run(path, number(count)?, number(batch)?.max(1), &mut io::stdout()).map(|n| format!("written {n}"))
        }
        ["check", path] => check(path, 0).map(|n| format!("verified {n}")),
        ["check", path, acknowledged] => check(path, number(acknowledged)?).map(|n| format!("verified {n}")),
        _ => Err(Failure::Usage),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match command(&arguments) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("verified-write: {failure}");
            ExitCode::from(if matches!(failure, Failure::Usage) { 2 } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> String {
        let path = std::env::temp_dir().join(format!("verified-write-{}-{name}", std::process::id()));
        path.to_str().expect("a temporary path is text").to_owned()
    }

    fn written(name: &str, count: u64) -> String {
        let path = scratch(name);
        let mut out = Vec::new();
        run(&path, count, 2, &mut out).expect("writes");
        assert!(String::from_utf8_lossy(&out).ends_with(&format!("acknowledged {count}\n")));
        path
    }

    fn damage(path: &str, offset: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(path).expect("opens");
        file.write_all_at(bytes, offset).expect("writes");
    }

    #[test]
    fn finds_what_it_wrote() {
        let path = written("whole", 5);
        assert_eq!(check(&path, 5).expect("verifies"), 5);
        assert!(check(&path, 6).is_err());
        std::fs::remove_file(path).expect("removes");
    }

    #[test]
    fn notices_one_changed_byte() {
        let path = written("byte", 5);
        damage(&path, 2 * SIZE as u64 + 1000, b"?!");
        assert!(matches!(check(&path, 0), Err(Failure::Damage(_))));
        std::fs::remove_file(path).expect("removes");
    }

    #[test]
    fn forgives_a_torn_end_that_nobody_acknowledged() {
        let path = written("torn", 5);
        damage(&path, 4 * SIZE as u64 + 8, &[0; 2000]);
        assert_eq!(check(&path, 4).expect("verifies"), 4);
        assert!(check(&path, 5).is_err());
        std::fs::remove_file(path).expect("removes");
    }

    #[test]
    fn does_not_take_an_older_run_for_its_own() {
        let path = written("older", 6);
        run(&path, 3, 1, &mut Vec::new()).expect("writes");
        assert_eq!(check(&path, 3).expect("verifies"), 3);
        std::fs::remove_file(path).expect("removes");
    }
}

//! How fast a disk is, one request at a time and past the page cache.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: disk-speed DEV SECONDS

Overwrites DEV and prints how often a second it did each of these, for SECONDS each:
write-1m and read-1m (from the start to the end), write-4k and read-4k (anywhere)";

const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;
/// Linux's O_DIRECT on x86-64.
const O_DIRECT: i32 = 0o40000;

/// Aligned, because direct requests demand it.
#[repr(align(4096))]
struct Buffer([u8; LARGE]);

#[derive(Debug)]
enum Failure {
    Usage,
    TooSmall,
    Io(&'static str, io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage => f.write_str(USAGE),
            Self::TooSmall => f.write_str("the device is smaller than 1 MiB"),
            Self::Io(what, err) => write!(f, "{what}: {err}"),
        }
    }
}

struct Disk {
    file: File,
    size: u64,
    buffer: Box<Buffer>,
    random: u64,
}

impl Disk {
    fn open(path: &str) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(O_DIRECT);
        let mut file = options.open(path).map_err(|err| Failure::Io("open", err))?;
        let size = file.seek(SeekFrom::End(0)).map_err(|err| Failure::Io("find the size", err))?;
        if size < LARGE as u64 {
            return Err(Failure::TooSmall);
        }
        Ok(Self { file, size, buffer: Box::new(Buffer([0x5a; LARGE])), random: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Where the next request of this length goes: the large ones follow each other, the small ones go anywhere.
    fn place(&mut self, done: u64, length: u64) -> u64 {
        let places = self.size / length;
        if length == LARGE as u64 {
            return done % places * length;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % places * length
    }

    /// How many requests a second.
    fn measure(&mut self, length: usize, is_write: bool, time: Duration) -> io::Result<f64> {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < time {
            let place = self.place(done, length as u64);
            let bytes = &mut self.buffer.0[..length];
            if is_write {
                self.file.write_all_at(bytes, place)?;
            } else {
                self.file.read_exact_at(bytes, place)?;
            }
            done += 1;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }
}

fn run() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, seconds] = args.as_slice() else { return Err(Failure::Usage) };
    let time = Duration::from_secs(seconds.parse().map_err(|_| Failure::Usage)?);
    let mut disk = Disk::open(device)?;
    for (name, length, is_write) in
        [("write-1m", LARGE, true), ("read-1m", LARGE, false), ("write-4k", SMALL, true), ("read-4k", SMALL, false)]
    {
        let rate = disk.measure(length, is_write, time).map_err(|err| Failure::Io(name, err))?;
        println!("{name} {rate:.1}");
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

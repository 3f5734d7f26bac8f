//! What the program under test believes about the world: the time and chance are the simulation's.
//!
//! The hash tables of the standard library, `select!` and the wake-ups of tokio, uids and nonces all draw from `getrandom`; every
//! clock asks `clock_gettime`. Both are defined here, so that the linker takes these and not the C library's, and the same seed
//! gives the same run down to the order of a hash table. The only file with `unsafe` in it.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Pid;

/// 2026-01-01T00:00:00Z, when every simulation starts.
const EPOCH_SECONDS: u64 = 1_767_225_600;

static IS_VIRTUAL: AtomicBool = AtomicBool::new(true);
/// Since the start of the simulation.
static ELAPSED_NANOS: AtomicU64 = AtomicU64::new(0);
/// The generator behind `getrandom`.
static CHANCE: AtomicU64 = AtomicU64::new(0x5eed);

/// What the clocks say from now on.
pub(crate) fn set_elapsed(elapsed: Duration) {
    ELAPSED_NANOS.store(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// What `getrandom` gives from now on.
pub(crate) fn set_chance(seed: u64) {
    CHANCE.store(seed, Ordering::Relaxed);
}

/// The processor's own time, for the figures that a person reads.
pub(crate) fn real_elapsed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to where the pointer leads, which is ours.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A second process, with everything that this one has.
pub(crate) enum Forked {
    Child,
    Parent(Pid),
}

pub(crate) fn fork() -> io::Result<Forked> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("of {threads} threads a child would have one")));
    }
    // SAFETY: there is one thread, so that no lock is held by one that the child would not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid::from_raw(pid).unwrap_or(Pid::INIT))),
    }
}

/// The process is ended by a signal after so many seconds, which are real ones.
pub(crate) fn end_after(seconds: u32) {
    // SAFETY: nothing is handed over but a number.
    unsafe { libc::alarm(seconds) };
}

/// Splitmix: any state will do, and each gives another number.
fn next_chance() -> u64 {
    let state = CHANCE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// # Safety
/// As the C library's: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, length: libc::size_t, _flags: libc::c_uint) -> libc::ssize_t {
    // Some ask for nothing, with a pointer to nowhere, to see whether it works.
    if length > 0 {
        // SAFETY: the caller promises this room.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&next_chance().to_le_bytes()[..chunk.len()]);
        }
    }
    libc::ssize_t::try_from(length).unwrap_or(libc::ssize_t::MAX)
}

/// # Safety
/// As the C library's: `time` leads to a timespec.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    if !IS_VIRTUAL.load(Ordering::Relaxed) {
        // SAFETY: the arguments are passed on as they came.
        return libc::c_int::try_from(unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) }).unwrap_or(-1);
    }
    let elapsed = Duration::from_nanos(ELAPSED_NANOS.load(Ordering::Relaxed));
    let now = Duration::from_secs(EPOCH_SECONDS) + elapsed;
    // SAFETY: the caller promises a timespec. The conversions hold until the year 2262.
    unsafe {
        (*time).tv_sec = libc::time_t::try_from(now.as_secs()).unwrap_or(libc::time_t::MAX);
        (*time).tv_nsec = libc::c_long::from(now.subsec_nanos());
    }
    0
}

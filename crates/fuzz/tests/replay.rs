//! The fuzz targets without a fuzzer: what is in `fuzz/corpus`, everything that ever broke a target (`fuzz/regressions`), and
//! a moment of seeded mutation each. Fast, the same every time, and on the stable compiler.
//!
//! `FUZZ_SEED=<number>` tries others; a failure says which input it was, and where it was kept.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use croft_fuzz::mutate::{Random, mutated};
use croft_fuzz::{TARGETS, Target, target};

/// What any input may take of a processor, unoptimised; most take a thousandth of it.
const MOST: Duration = Duration::from_secs(10);
/// Inputs made up per target.
const MADE_UP: usize = 2000;
/// What all inputs made up for one target may take together; slow targets try fewer.
const MADE_UP_TIME: Duration = Duration::from_millis(500);
const LONGEST: usize = 64 << 10;

fn directory(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
}

fn inputs(kind: &str, target: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(directory(kind, target)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

fn processor_time() -> Duration {
    // Nanoseconds on a processor, then others: of this thread, whatever else the machine does.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Runs one input; a failure is told with the input's name, and what was made up is kept.
fn run(target: &Target, name: &str, data: &[u8], is_made_up: bool) -> Result<(), String> {
    let before = processor_time();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    let spent = processor_time().saturating_sub(before);
    if outcome.is_ok() && spent < MOST {
        return Ok(());
    }
    let mut place = name.to_owned();
    if is_made_up {
        let path = std::env::temp_dir().join(format!("croft-fuzz-{}-{}", target.name, std::process::id()));
        std::fs::write(&path, data).unwrap();
        place = format!("{name}, kept in {}", path.display());
    }
    Err(format!("{}: {place} took {spent:?}{}", target.name, if outcome.is_err() { " and broke it" } else { "" }))
}

fn replay(target: &Target) -> Result<(), String> {
    let mut known = ["corpus", "regressions"].into_iter().flat_map(|kind| inputs(kind, target.name));
    known.try_for_each(|(name, data)| run(target, &name, &data, false))
}

fn make_up(target: &Target, seed: u64) -> Result<(), String> {
    let corpus: Vec<Vec<u8>> = ["corpus", "regressions"]
        .into_iter()
        .flat_map(|kind| inputs(kind, target.name))
        .map(|(_, data)| data)
        .collect();
    let mut random = Random::new(seed);
    let start = processor_time();
    for number in 0..MADE_UP {
        if processor_time().saturating_sub(start) > MADE_UP_TIME {
            break;
        }
        let data = mutated(&corpus, &mut random, LONGEST);
        run(target, &format!("input {number} of FUZZ_SEED={seed}"), &data, true)?;
    }
    Ok(())
}

/// All targets, on as many threads as there are processors. All that are broken are told.
fn each(work: impl Fn(&Target) -> Result<(), String> + Sync) {
    let next = AtomicUsize::new(0);
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    broken.lock().unwrap().extend(work(target).err());
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{} targets:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn what_is_known_passes() {
    each(replay);
}

#[test]
fn what_is_made_up_passes() {
    let seed = std::env::var("FUZZ_SEED").map_or(1, |seed| seed.parse().expect("FUZZ_SEED is a number"));
    each(|target| make_up(target, seed));
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    for target in TARGETS {
        assert!(!inputs("corpus", target.name).is_empty(), "fuzz/corpus/{} is empty", target.name);
    }
    for kind in ["corpus", "regressions"] {
        let directories = std::fs::read_dir(directory(kind, "")).into_iter().flatten();
        for name in directories.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
            assert!(target(&name).is_some(), "fuzz/{kind}/{name} belongs to no target");
        }
    }
}

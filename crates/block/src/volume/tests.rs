use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::Options;
use crate::pool::tests::Place;

fn plain() -> (tempfile::TempDir, Pool) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { is_plain: true, ..Options::default() };
    let pool = Pool::open("default", &dir.path().join("pool"), &options).unwrap();
    (dir, pool)
}

#[test]
fn a_volume_lives_from_its_making_to_its_deletion() {
    let (_dir, pool) = plain();
    let made = pool.create("pvc-1", 10 << 20).unwrap();
    assert_eq!((made.size_bytes, made.allocated_bytes), (10 << 20, 0));
    assert!(matches!(pool.create("pvc-1", 1 << 20), Err(VolumeError::Exists(_))));
    assert_eq!(pool.grow("pvc-1", 20 << 20).unwrap().size_bytes, 20 << 20);
    assert!(matches!(pool.grow("pvc-1", 10 << 20), Err(VolumeError::Shrinks { .. })));
    assert!(matches!(pool.grow("pvc-2", 10 << 20), Err(VolumeError::NotFound(_))));
    pool.create("pvc-0", 1 << 20).unwrap();
    let names: Vec<String> = pool.volumes().unwrap().into_iter().map(|volume| volume.name).collect();
    assert_eq!(names, ["pvc-0", "pvc-1"]);
    pool.delete("pvc-1").unwrap();
    pool.delete("pvc-1").unwrap();
    assert!(matches!(pool.volume("pvc-1"), Err(VolumeError::NotFound(_))));
}

#[test]
fn names_that_lead_elsewhere_and_sizes_that_cannot_be_are_refused() {
    let (_dir, pool) = plain();
    for name in ["", "..", "../x", "a/b", ".hidden", "A", "a\0b", "a b", &"x".repeat(300)] {
        assert!(matches!(pool.create(name, 1 << 20), Err(VolumeError::BadName(_))), "{name:?}");
        assert!(matches!(pool.delete(name), Err(VolumeError::BadName(_))), "{name:?}");
    }
    for size in [0, 1, 511, 513, u64::MAX, u64::MAX - 511] {
        assert!(matches!(pool.create("a", size), Err(VolumeError::BadSize(_))), "{size}");
    }
}

#[test]
fn a_clone_has_the_content_and_the_wanted_size_on_every_file_system() {
    let place = Place::new();
    let (_dir, copying) = plain();
    for pool in [place.pool(400), copying] {
        let image = pool.create("image", 4 << 20).unwrap();
        let file = OpenOptions::new().write(true).open(&image.path).unwrap();
        file.write_all_at(b"hello", 3 << 20).unwrap();
        let clone = pool.create_from("clone", &image.path, 8 << 20).unwrap();
        assert_eq!(clone.size_bytes, 8 << 20);
        file.write_all_at(b"later", 3 << 20).unwrap();
        let mut read = [0; 5];
        File::open(&clone.path).unwrap().read_exact_at(&mut read, 3 << 20).unwrap();
        assert_eq!(&read, b"hello", "a clone is its own");
        let small = pool.create_from("small", &image.path, 2 << 20);
        assert!(matches!(small, Err(VolumeError::SourceLarger { .. })));
        assert_eq!(fs::read_dir(pool.tmp()).unwrap().count(), 0);
    }
}

#[test]
fn a_volume_is_replaced_as_a_whole_and_keeps_its_size() {
    let (_dir, pool) = plain();
    pool.create("pvc", 2 << 20).unwrap();
    let staged = Staged::new(&pool.tmp(), "import").unwrap();
    staged.file().write_all_at(b"content", 0).unwrap();
    let replaced = pool.replace("pvc", staged).unwrap();
    assert_eq!(replaced.size_bytes, 2 << 20);
    assert!(fs::read(&replaced.path).unwrap().starts_with(b"content"));
    let large = Staged::new(&pool.tmp(), "import").unwrap();
    large.file().set_len(3 << 20).unwrap();
    assert!(matches!(pool.replace("pvc", large), Err(VolumeError::SourceLarger { .. })));
    assert_eq!(fs::read_dir(pool.tmp()).unwrap().count(), 0);
}

#[test]
fn the_time_a_clone_takes_does_not_grow_with_the_image() {
    let place = Place::new();
    let pool = place.pool(700);
    let image = pool.create("image", 300 << 20).unwrap();
    let file = OpenOptions::new().write(true).open(&image.path).unwrap();
    let start = Instant::now();
    for mib in 0..300 {
        file.write_all_at(&vec![0x5a; 1 << 20], mib << 20).unwrap();
    }
    file.sync_all().unwrap();
    let written = start.elapsed();
    let before = pool.usage().unwrap();
    let start = Instant::now();
    for index in 0..5 {
        pool.create_from(&format!("clone-{index}"), &image.path, 10 << 30).unwrap();
    }
    let cloned = start.elapsed() / 5;
    assert!(cloned * 4 < written, "a clone took {cloned:?}, writing the image {written:?}");
    let taken = before.free_bytes.saturating_sub(pool.usage().unwrap().free_bytes);
    assert!(taken < 20 << 20, "five clones of 300 MiB took {taken} bytes");
}

#[test]
fn a_full_pool_is_told_as_such_and_keeps_nothing_half_made() {
    let place = Place::new();
    let pool = place.pool(320);
    let outside = tempfile::tempdir().unwrap();
    let source = outside.path().join("source");
    let file = OpenOptions::new().write(true).create_new(true).open(&source).unwrap();
    for mib in 0..400 {
        file.write_all_at(&vec![0x33; 1 << 20], mib << 20).unwrap();
    }
    let error = pool.create_from("large", &source, 400 << 20).unwrap_err();
    assert!(matches!(error, VolumeError::Full), "{error}");
    assert!(pool.volumes().unwrap().is_empty());
    assert_eq!(fs::read_dir(pool.tmp()).unwrap().count(), 0);
    pool.create("small", 1 << 20).unwrap();
}

const CHILD: &str = "CROFT_BLOCK_TEST_POOL";

/// Not a test: what the next one kills.
#[test]
#[ignore = "run by another test"]
fn clones_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let pool = Pool::open("default", Path::new(&dir), &Options { is_plain: true, ..Options::default() }).unwrap();
    let source = pool.volume("image").unwrap().path;
    for index in 0.. {
        pool.create_from(&format!("clone-{index}"), &source, 8 << 20).unwrap();
        if index % 3 == 2 {
            pool.grow(&format!("clone-{}", index - 1), 9 << 20).unwrap();
            pool.delete(&format!("clone-{}", index - 2)).unwrap();
        }
    }
}

#[test]
fn whoever_is_killed_leaves_whole_volumes_only() {
    let (dir, pool) = plain();
    let image = pool.create("image", 8 << 20).unwrap();
    let file = OpenOptions::new().write(true).open(&image.path).unwrap();
    file.write_all_at(&vec![0x77; 4 << 20], 0).unwrap();
    file.write_all_at(b"end", (8 << 20) - 3).unwrap();
    let wanted = fs::read(&image.path).unwrap();
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "volume::tests::clones_until_it_is_killed", "--ignored"])
            .env(CHILD, dir.path().join("pool"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // It has begun when there is something new, and is ended a little later each time.
        let deadline = Instant::now() + Duration::from_mins(1);
        while pool.volumes().unwrap().len() < 2 {
            assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "it makes no volumes");
            std::thread::yield_now();
        }
        let later = Instant::now() + Duration::from_millis(7 * round);
        while Instant::now() < later {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let options = Options { is_plain: true, ..Options::default() };
        let pool = Pool::open("default", &dir.path().join("pool"), &options).unwrap();
        assert_eq!(fs::read_dir(pool.tmp()).unwrap().count(), 0);
        for volume in pool.volumes().unwrap() {
            assert!(fs::read(&volume.path).unwrap().starts_with(&wanted), "{volume:?}");
            if volume.name != "image" {
                pool.delete(&volume.name).unwrap();
            }
        }
    }
}

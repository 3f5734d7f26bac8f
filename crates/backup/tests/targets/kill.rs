//! Whoever backs up, restores and deletes is killed, at points that a seed chooses. Whatever is complete comes back byte by byte as
//! it was, also where a restore was killed half-way, and a clean-up leaves nothing that is not needed.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use croft_backup::{
    BackupRequest, BackupStore, Base, Changes, Directory, Extent, Freed, Nfs, Owner, S3, S3Access, Target, Transfer,
};
use futures::TryStreamExt;

use crate::stage::{self, BLOCK, Random, again, request};

const PLACE: &str = "CROFT_BACKUP_TEST_PLACE";
const KEPT: &str = "CROFT_BACKUP_TEST_KEPT";
const SEED: &str = "CROFT_BACKUP_TEST_SEED";
const VOLUME: &str = "pvc-killed";
/// Four blocks and a piece of one.
const SIZE: usize = 4 * BLOCK + 5 * 512;

/// Where the backups are, in a form that another process can be told.
#[derive(Clone)]
pub(crate) enum Place {
    Directory { path: PathBuf },
    Nfs { path: PathBuf },
    S3 { access: S3Access },
}

impl Place {
    fn text(&self) -> String {
        match self {
            Self::Directory { path } => format!("directory|{}", path.display()),
            Self::Nfs { path } => format!("nfs|{}", path.display()),
            Self::S3 { access } => {
                format!("s3|{}|{}|{}", access.endpoint, access.access_key_id, access.secret_access_key)
            }
        }
    }

    fn parse(text: &str) -> Self {
        match text.split('|').collect::<Vec<_>>()[..] {
            ["directory", path] => Self::Directory { path: path.into() },
            ["nfs", path] => Self::Nfs { path: path.into() },
            ["s3", endpoint, id, secret] => {
                let access = S3Access {
                    endpoint: endpoint.into(),
                    access_key_id: id.into(),
                    secret_access_key: secret.into(),
                    ..S3Access::default()
                };
                Self::S3 { access }
            }
            _ => panic!("not a place: {text}"),
        }
    }

    fn target(&self) -> Arc<dyn Target> {
        match self {
            Self::Directory { path } => Arc::new(Directory::new(path)),
            Self::Nfs { path } => Arc::new(Nfs::new("127.0.0.1", path.to_str().unwrap(), &[]).unwrap()),
            Self::S3 { access } => Arc::new(S3::new("croft", "us-east-1", "killed", access.clone()).unwrap()),
        }
    }

    /// The same owner every time: each process finds what the one before it left.
    fn store(&self) -> BackupStore {
        BackupStore::new(self.target(), Owner::new("killed").unwrap())
    }
}

/// What was kept, and what should come back: each backup is of a file of its own, as of a snapshot, which is not written to again.
struct Kept(PathBuf);

impl Kept {
    fn path(&self, backup: &str) -> PathBuf {
        self.0.join(backup)
    }

    /// Where disks come back to, again and again: who was killed there has left half of another one.
    fn restored(&self) -> PathBuf {
        self.0.join("restored")
    }

    /// A disk with few different contents, so that backups share blocks with those that are deleted, and what of it differs from
    /// the one that it builds on: pieces of blocks mostly, some across two of them, some that are the same again.
    fn next(&self, backup: &str, base: Option<&str>, random: &mut Random) -> Changes {
        let Some(base) = base else {
            let mut content = vec![0; SIZE];
            for block in content.chunks_mut(BLOCK) {
                block.fill(u8::try_from(random.below(6)).unwrap());
            }
            std::fs::write(self.path(backup), content).unwrap();
            return Changes::All;
        };
        let mut content = std::fs::read(self.path(base)).unwrap();
        let mut extents = Vec::new();
        for _ in 0..random.below(4) {
            let place = |random: &mut Random, end: usize| usize::try_from(random.below(end as u64)).unwrap();
            let (start, length) = match random.below(3) {
                0 => (place(random, SIZE / BLOCK) * BLOCK, BLOCK),
                1 => (place(random, SIZE), 1 + place(random, 5000)),
                _ => (place(random, SIZE), 1 + place(random, BLOCK)),
            };
            let end = (start + length).min(SIZE);
            content[start..end].fill(u8::try_from(random.below(6)).unwrap());
            extents.push(Extent { offset: start as u64, length: (end - start) as u64 });
        }
        std::fs::write(self.path(backup), content).unwrap();
        Changes::Since { backup: base.to_owned(), extents }
    }

    /// Restores it, and compares every byte.
    async fn compare(&self, store: &BackupStore, backup: &str) {
        let opened = store.open(VOLUME, backup, None).await.unwrap();
        let restored = opened.restore(&self.restored(), Base::Nothing, &Transfer::default()).await;
        opened.close().await;
        restored.unwrap_or_else(|error| panic!("backup {backup}: {}", croft_meta::Chain(&error)));
        let (is, was) = (std::fs::read(self.restored()).unwrap(), std::fs::read(self.path(backup)).unwrap());
        assert!(is == was, "backup {backup} is another disk");
    }

    /// Of those that are gone.
    fn forget_all_but(&self, backups: &[String]) {
        for entry in std::fs::read_dir(&self.0).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name != "restored" && !backups.contains(&name) {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

/// Backs up, restores, deletes and cleans up until it is killed. Not a test by itself: without a place it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn work_until_killed() {
    let (Ok(place), Ok(kept), Ok(seed)) = (std::env::var(PLACE), std::env::var(KEPT), std::env::var(SEED)) else {
        return;
    };
    let (store, kept, mut random) = (Place::parse(&place).store(), Kept(kept.into()), Random(seed.parse().unwrap()));
    loop {
        let backups = store.backups(VOLUME).await.unwrap();
        let complete = complete(&store, &backups).await;
        let chosen = |from: &[String], random: &mut Random| {
            (!from.is_empty()).then(|| from[usize::try_from(random.below(from.len() as u64)).unwrap()].clone())
        };
        println!("next");
        match random.below(8) {
            0..=2 if backups.len() > 2 => {
                store.delete_backup(VOLUME, &chosen(&backups, &mut random).unwrap()).await.unwrap();
            }
            3 => drop(store.clean_up(VOLUME).await.unwrap()),
            4 | 5 if !complete.is_empty() => {
                kept.compare(&store, &chosen(&complete, &mut random).unwrap()).await;
            }
            6 if complete.len() < backups.len() => {
                // One that somebody was killed at is done to the end.
                let name = backups.iter().find(|backup| !complete.contains(backup)).unwrap();
                store.write(&request(&kept.path(name), VOLUME, name)).await.unwrap();
            }
            _ => {
                let name = format!("backup-{:016x}", random.next());
                let changes = kept.next(&name, chosen(&complete, &mut random).as_deref(), &mut random);
                let request = BackupRequest { changes, ..request(&kept.path(&name), VOLUME, &name) };
                store.write(&request).await.unwrap();
            }
        }
    }
}

async fn complete(store: &BackupStore, backups: &[String]) -> Vec<String> {
    let mut complete = Vec::new();
    for backup in backups {
        let config = store.backup(VOLUME, backup).await.unwrap().expect("what is listed is there");
        if config.is_complete() {
            complete.push(backup.clone());
        }
    }
    complete
}

/// Kills that many times, and looks each time at what is there.
pub(crate) async fn points(place: &Place, count: u64, seed: u64) {
    let dir = stage::dir();
    let kept = Kept(dir.path().to_owned());
    for point in seed..seed + count {
        let mut random = Random(point);
        let mut command = again(&[], "kill::work_until_killed");
        command.env(PLACE, place.text()).env(KEPT, dir.path()).env(SEED, point.to_string());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..=random.below(3) {
            assert!(lines.any(|line| line.unwrap().contains("next")), "it ended by itself, seed {point}");
        }
        tokio::time::sleep(Duration::from_micros(random.below(25_000))).await;
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.signal(), Some(9), "it ended by itself, seed {point}");
        println!("seed {point}");
        inspect(&place.store(), &kept, point).await;
    }
}

async fn inspect(store: &BackupStore, kept: &Kept, seed: u64) {
    let backups = store.backups(VOLUME).await.unwrap();
    let complete = complete(store, &backups).await;
    for backup in &complete {
        kept.compare(store, backup).await;
    }
    kept.forget_all_but(&backups);
    // Nothing is left after a clean-up, every few times, so that others find leftovers of several.
    if !seed.is_multiple_of(4) {
        return;
    }
    let first = store.clean_up(VOLUME).await.unwrap();
    assert!(!first.is_partial, "seed {seed}: {first:?}");
    assert_eq!(store.clean_up(VOLUME).await.unwrap(), Freed::default(), "seed {seed}: not all at once");
    assert_eq!(store.backups(VOLUME).await.unwrap(), complete, "seed {seed}: what is complete stays, and nothing else");
    let mut needed = Vec::new();
    for backup in &complete {
        let config = store.backup(VOLUME, backup).await.unwrap().expect("it is there");
        needed.extend(config.blocks.iter().map(|block| block.block_checksum));
        let opened = store.open(VOLUME, backup, None).await.unwrap();
        let verified = opened.verify(&Transfer::default()).await.unwrap();
        assert!(verified.is_sound(), "seed {seed}, backup {backup}: {verified:?}");
        opened.close().await;
    }
    needed.sort_unstable();
    needed.dedup();
    let files: Vec<_> = store.target().walk("backupstore").try_collect().await.unwrap();
    let count = |ending: &str| files.iter().filter(|file| file.path.ends_with(ending)).count();
    assert_eq!(count(".blk"), needed.len(), "seed {seed}: {files:?}");
    assert_eq!(files.len(), count(".blk") + count(".cfg"), "seed {seed}: {files:?}");
}

#[tokio::test]
async fn eighty_points_in_a_directory() {
    in_a_directory(80, 1000).await;
}

#[tokio::test]
async fn eighty_more_points_in_a_directory() {
    in_a_directory(80, 2000).await;
}

async fn in_a_directory(count: u64, seed: u64) {
    let dir = stage::dir();
    points(&Place::Directory { path: dir.path().to_owned() }, count, seed).await;
}

//! Whoever backs up and deletes is killed, at points that a seed chooses. Whatever is complete can be restored, and a clean-up
//! leaves nothing that is not needed.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use croft_backup::{
    BackupRequest, BackupStore, Changes, Compression, Directory, Freed, Nfs, Owner, S3, S3Access, Target, Transfer,
};
use futures::TryStreamExt;

use crate::stage::{self, BLOCK, Random, again, request};

const PLACE: &str = "CROFT_BACKUP_TEST_PLACE";
const SEED: &str = "CROFT_BACKUP_TEST_SEED";
const VOLUME: &str = "pvc-killed";

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

/// Backs up, deletes and cleans up until it is killed. Not a test by itself: without a place it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn work_until_killed() {
    let (Ok(place), Ok(seed)) = (std::env::var(PLACE), std::env::var(SEED)) else { return };
    let (store, mut random) = (Place::parse(&place).store(), Random(seed.parse().unwrap()));
    let dir = stage::dir();
    let path = dir.path().join("disk");
    let mut content = vec![0; 4 * BLOCK];
    loop {
        let backups = store.backups(VOLUME).await.unwrap();
        println!("next");
        match random.below(4) {
            0 | 1 if backups.len() > 2 => {
                let which = usize::try_from(random.below(backups.len() as u64)).unwrap();
                store.delete_backup(VOLUME, &backups[which]).await.unwrap();
            }
            2 if random.below(4) == 0 => drop(store.clean_up(VOLUME).await.unwrap()),
            _ => {
                for index in 0..4 {
                    // Few different contents, so that backups share blocks with those that are deleted.
                    content[index * BLOCK..(index + 1) * BLOCK].fill(u8::try_from(random.below(6)).unwrap());
                    content[index * BLOCK] = u8::try_from(random.below(2)).unwrap();
                }
                std::fs::write(&path, &content).unwrap();
                let whole = croft_backup::Extent { offset: 0, length: content.len() as u64 };
                let changes = match backups.last() {
                    Some(backup) => Changes::Since { backup: backup.clone(), extents: vec![whole] },
                    None => Changes::All,
                };
                let name = format!("backup-{:016x}", random.next());
                let compression = Compression::Lz4;
                let request = BackupRequest { changes, compression, ..request(&path, VOLUME, &name) };
                store.write(&request).await.unwrap();
            }
        }
    }
}

/// Kills that many times, and looks each time at what is there.
pub(crate) async fn points(place: &Place, count: u64, seed: u64) {
    for point in seed..seed + count {
        let mut random = Random(point);
        let mut command = again(&[], "kill::work_until_killed");
        command.env(PLACE, place.text()).env(SEED, point.to_string());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..=random.below(3) {
            assert!(lines.any(|line| line.unwrap().contains("next")), "it ended by itself, seed {point}");
        }
        tokio::time::sleep(Duration::from_micros(random.below(25_000))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        inspect(&place.store(), point).await;
    }
}

async fn inspect(store: &BackupStore, seed: u64) {
    let mut complete = Vec::new();
    for backup in store.backups(VOLUME).await.unwrap() {
        let config = store.backup(VOLUME, &backup).await.unwrap().expect("what is listed is there");
        if config.is_complete() {
            let opened = store.open(VOLUME, &backup, None).await.unwrap();
            let verified = opened.verify(&Transfer::default()).await.unwrap();
            assert!(verified.is_sound(), "seed {seed}, backup {backup}: {verified:?}");
            opened.close().await;
            complete.push(config);
        }
    }
    // Nothing is left after a clean-up, every few times, so that others find leftovers of several.
    if !seed.is_multiple_of(4) {
        return;
    }
    let first = store.clean_up(VOLUME).await.unwrap();
    assert!(!first.is_partial, "seed {seed}: {first:?}");
    assert_eq!(store.clean_up(VOLUME).await.unwrap(), Freed::default(), "seed {seed}: not all at once");
    assert_eq!(store.backups(VOLUME).await.unwrap().len(), complete.len(), "seed {seed}: a complete backup went");
    let mut needed: Vec<_> = complete.iter().flat_map(|config| &config.blocks).map(|it| it.block_checksum).collect();
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

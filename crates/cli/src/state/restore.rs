//! Filling the store of a server that was never started.
//!
//! Keys and certificates first, then the objects, each made aside and moved to its place when it is whole: a command that was
//! cut short can be given again.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use croft_meta::Revision;
use croft_meta::time::format_seconds;
use croft_store::embedded::{DirLock, after_restoring};
use croft_store::sealed::Sealer;
use croft_store::{Compare, Etcd, Gate, Op, Passage, Range, Record, Restoring, Store, Txn, TxnResult};
use jiff::Timestamp;

use super::choose;
use super::saved::{self, About, Unnamed};
use crate::backup::target::TargetArgs;
use crate::migrate_store::check_gate;
use crate::options::ServerArgs;
use crate::server::create_data_dir;
use crate::settings::{EtcdSettings, Settings, StoreSettings};
use crate::{Failure, print, store};

pub(super) const HELP: &str = "Say the same --config, --data-dir, --store, --etcd-... and --encrypt... as for \"croft server\", which is started after it; \
the other options of the server are taken and do nothing. With --target the keys of a bucket are taken from AWS_ACCESS_KEY_ID, \
AWS_SECRET_ACCESS_KEY, AWS_ENDPOINTS, AWS_CERT and VIRTUAL_HOSTED_STYLE in the environment.";

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The file that was saved; without it, one of --target
    #[arg(required_unless_present = "target", conflicts_with_all = ["target", "name"])]
    file: Option<PathBuf>,
    /// Which one of the target [default: the newest, if all are of one cluster]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: RestoreArgs) -> Result<(), Failure> {
    let settings = Settings::resolve(args.server).map_err(Failure::usage)?;
    let fetched = Unnamed::new()?;
    let file = if let Some(file) = &args.file {
        file.clone()
    } else {
        let file = fetched.path();
        let opened = args.target.open_said()?;
        let states = opened.store.states().await.context("cannot list the backup target")?;
        let state = choose(states, args.name.as_deref())?;
        let copied = opened.store.fetch_state(&state, &file, opened.keys.current()).await;
        copied.with_context(|| format!("cannot fetch the state {}", state.name))?;
        file
    };
    let about = saved::check(&file).await?;
    create_data_dir(&settings.data_dir)?;
    match &settings.store {
        StoreSettings::Embedded => into_directory(&settings, &file, &about).await?,
        StoreSettings::Etcd(etcd) => into_etcd(&settings, etcd, &file, &about).await?,
    }
    let place = settings.data_dir.display();
    print(&format!(
        "{place} has {}\nstart the server as ever; see \"The machine is gone\" in docs/operations.md\n",
        about.words()
    ))
}

async fn into_directory(settings: &Settings, file: &Path, about: &About) -> anyhow::Result<()> {
    let (dir, file) = (settings.data_dir.join("store"), file.to_owned());
    let mut restoring = Restoring::begin(&dir, Revision(about.head.revision))?;
    write_files(&settings.data_dir, &about.files)?;
    let sealer = Sealer::open(&settings.encryption, &format_seconds(Timestamp::now()))?;
    let filled = tokio::task::spawn_blocking(move || -> anyhow::Result<()> {
        saved::read(&file, |record| Ok(restoring.add(&sealer.seal(record)?)?))?;
        Ok(restoring.finish(unix_millis())?)
    });
    filled.await.context("the restore was cut short")?
}

async fn into_etcd(settings: &Settings, etcd: &EtcdSettings, file: &Path, about: &About) -> anyhow::Result<()> {
    let dir = settings.data_dir.join("store");
    let _turn = DirLock::beside(&dir)?;
    let place = format!("{} on {}", std::path::absolute(&settings.data_dir)?.display(), crate::node_name::of_host());
    let mover = store::connect_past_gate(etcd).await?;
    let filled = fill_etcd(settings, etcd, &mover, &place, file, about).await;
    let closed = mover.close().await;
    filled?;
    Ok(closed?)
}

/// Its gate is shut until all is there, so that no server takes a part of it for the whole.
async fn fill_etcd(
    settings: &Settings,
    etcd: &EtcdSettings,
    mover: &Etcd,
    place: &str,
    file: &Path,
    about: &About,
) -> anyhow::Result<()> {
    let begun = begun(mover, place).await?;
    write_files(&settings.data_dir, &about.files)?;
    // Anew, whatever there was: nothing that an earlier command left on its way is to be done any more.
    let seen = shut_gate(mover, begun, place).await?;
    if begun.is_some() {
        check_gate(mover.clear(Some(seen)).await?)?;
    }
    // Far above what was saved, and above whatever etcd counts: nobody must take what is to come for what he knows.
    let ahead = after_restoring(Revision(about.head.revision), unix_millis());
    check_gate(mover.set_base(Some(seen), ahead.max(mover.revision().await?)).await?)?;
    let store = store::open_past_gate(etcd, &settings.encryption).await?;
    let written = write_records(&store, file).await;
    let closed = store.close().await;
    written?;
    closed?;
    check_gate(mover.set_gate(Some(seen), None).await?.is_some())
}

/// The version of the gate if an earlier command has shut it, and may have brought a part. Nobody else may, and nothing may be there.
async fn begun(mover: &Etcd, place: &str) -> anyhow::Result<Option<i64>> {
    match mover.gate().await? {
        Some((gate, seen)) if gate.passage == Passage::Restoring && gate.other == place => return Ok(Some(seen)),
        Some((gate, _)) => bail!("this etcd is not to be used: {}", gate.words()),
        None => {}
    }
    // Looked at as it is: the key of what is in the way may be gone.
    if !mover.range(Range { limit: 1, ..Range::default() }).await?.records.is_empty() {
        bail!("there are objects in this etcd already; \"etcdctl del --prefix /croft/\" removes them all");
    }
    Ok(None)
}

async fn shut_gate(mover: &Etcd, seen: Option<i64>, place: &str) -> anyhow::Result<i64> {
    let id = format!("{:016x}", getrandom::u64()?);
    let when = format_seconds(Timestamp::now());
    let gate = Gate { passage: Passage::Restoring, id, other: place.to_owned(), when };
    mover.set_gate(seen, Some(&gate)).await?.context("somebody else has begun to fill this etcd")
}

async fn write_records(store: &Arc<dyn Store>, file: &Path) -> anyhow::Result<()> {
    let (sender, mut records) = tokio::sync::mpsc::channel::<Record>(64);
    let file = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        saved::read(&file, |record| Ok(sender.blocking_send(record.clone())?)).map(drop)
    });
    let mut puts = tokio::task::JoinSet::new();
    while let Some(record) = records.recv().await {
        puts.spawn(put(Arc::clone(store), record));
        if puts.len() >= 16
            && let Some(done) = puts.join_next().await
        {
            done.context("the restore was cut short")??;
        }
    }
    while let Some(done) = puts.join_next().await {
        done.context("the restore was cut short")??;
    }
    reading.await.context("the restore was cut short")?
}

fn unix_millis() -> u64 {
    // A clock from before 1970 tells nothing.
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

async fn put(etcd: Arc<dyn Store>, record: Record) -> anyhow::Result<()> {
    let is_new = Compare { key: record.key.clone(), revision: Revision::ZERO };
    let op = Op::Put { key: record.key.clone(), value: record.value, lease: None };
    let txn = Txn { compare: vec![is_new], ops: vec![op.clone()] };
    match etcd.txn(txn).await.map_err(|error| store::refused(error, &[op]))? {
        TxnResult::Committed(_) => Ok(()),
        TxnResult::Conflict(_) => bail!("somebody else writes into this etcd: {} is there", record.key),
    }
}

/// Those that are there already must be the same: then an earlier command was cut short after them.
fn write_files(data_dir: &Path, files: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let (dir, aside) = (data_dir.join("pki"), data_dir.join("pki.restoring"));
    if dir.exists() {
        for (name, content) in files {
            if fs::read_to_string(data_dir.join(name)).ok().as_ref() != Some(content) {
                bail!("{} has other keys and certificates; move it away first", dir.display());
            }
        }
        return Ok(());
    }
    let write = || -> std::io::Result<()> {
        if aside.exists() {
            fs::remove_dir_all(&aside)?;
        }
        DirBuilder::new().mode(0o700).create(&aside)?;
        for (name, content) in files {
            let path = aside.join(name.strip_prefix("pki/").unwrap_or(name));
            let is_public = [".crt", ".pub"].iter().any(|ending| name.ends_with(ending));
            let mode = if is_public { 0o644 } else { 0o600 };
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
        }
        fs::rename(&aside, &dir)?;
        File::open(data_dir)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_private_and_others_are_not_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let files = |key: &str| {
            BTreeMap::from([("pki/ca.key".to_owned(), key.to_owned()), ("pki/ca.crt".to_owned(), "c".to_owned())])
        };
        write_files(dir.path(), &files("one")).unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join("pki").join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("ca.key"), mode("ca.crt")), (0o600, 0o644));
        write_files(dir.path(), &files("one")).unwrap();
        let error = write_files(dir.path(), &files("two")).unwrap_err().to_string();
        assert!(error.contains("other keys"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("pki/ca.key")).unwrap(), "one");
    }
}

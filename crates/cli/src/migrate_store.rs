//! `croft migrate-store`: all objects from the embedded store into etcd, or back.
//!
//! At every moment at most one of the two stores can be opened, and what was acknowledged is in it. Into etcd: its gate is shut
//! before the first object arrives, and opened after the directory is marked as left. Out of etcd: the gate is shut before the
//! first object is read, so that no server writes any more, and the directory is moved to its place when it is whole, marked as
//! not to be opened until etcd is known to be left. A command that was cut short is given again. Each holds a lock to its end,
//! which who gives it up takes first: that of the store it reads, or one beside the directory it makes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use croft_meta::time::format_seconds;
use croft_store::contents::{Contents, Pages, Summing, sum_up};
use croft_store::embedded::{self, DirLock, Moved};
use croft_store::{
    Embedded, EmbeddedOptions, Etcd, Gate, LeaseId, Op, Passage, Range, Record, Restoring, Store, Txn, TxnResult,
};
use jiff::Timestamp;

use crate::options::{ServerArgs, StoreKind};
use crate::server::create_data_dir;
use crate::settings::{EtcdSettings, Settings, StoreSettings};
use crate::{Failure, print, store};

pub(crate) const HELP: &str = "Stop the server first. Say the same --config, --data-dir and --etcd-... as for \"croft server\"; its other \
options are taken and do nothing. A command that was cut short is given again.";

/// Events are forgotten after an hour; in their new place the hour begins anew.
const EVENTS: &str = "registry/core/events/";
/// Where servers say that they run, which goes by itself.
const SERVERS: &str = "apiservers/";
const EVENTS_KEPT: Duration = Duration::from_hours(1);
/// What etcd takes in one transaction, and some room.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 512 * 1024;

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Where the objects are to be
    #[arg(long, value_enum)]
    to: StoreKind,
    /// Give up a move that was cut short: what it wrote is removed, and the store that it came from can be used again
    #[arg(long)]
    abort: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Both ends.
struct Move {
    dir: PathBuf,
    etcd: std::sync::Arc<Etcd>,
    /// As the other store calls it.
    directory_name: String,
    etcd_name: String,
    settings: EtcdSettings,
}

pub(crate) async fn run(args: MigrateArgs) -> Result<(), Failure> {
    let settings = Settings::resolve_with_etcd(args.server).map_err(Failure::usage)?;
    let StoreSettings::Etcd(etcd_settings) = settings.store else {
        return Err(Failure::usage(anyhow!("say where etcd is, with --etcd-endpoints")));
    };
    let data_dir = std::path::absolute(&settings.data_dir)?;
    let the_move = Move {
        dir: data_dir.join("store"),
        etcd: store::connect_past_gate(&etcd_settings).await?,
        directory_name: format!("{} on {}", data_dir.display(), crate::node_name::of_host()),
        etcd_name: format!("etcd at {}", etcd_settings.endpoints.join(",")),
        settings: etcd_settings,
    };
    let told = match (args.to, args.abort) {
        (StoreKind::Etcd, false) => the_move.to_etcd().await,
        (StoreKind::Embedded, false) => the_move.to_directory().await,
        (to, true) => the_move.abort(to).await,
    };
    let closed = the_move.etcd.close().await;
    let told = told?;
    closed?;
    print(&format!("{told}\n"))
}

impl Move {
    async fn to_etcd(&self) -> anyhow::Result<String> {
        let gate = self.etcd.gate().await?;
        if let Some(moved) = embedded::moved(&self.dir)? {
            return self.finish_into_etcd(&moved, gate).await;
        }
        if let Some((gate, _)) = gate.as_ref().filter(|(gate, _)| !self.is_ours_to_fill(gate)) {
            bail!("{}: {}", self.etcd_name, gate.words());
        }
        if !self.dir.join("store.db").exists() {
            bail!("there is no store in {}", self.dir.display());
        }
        let source = open_embedded(&self.dir).await?;
        let moved = self.fill_etcd(&source, gate).await;
        let closed = source.close().await;
        let moved = moved?;
        closed?;
        Ok(moved)
    }

    /// An earlier command came as far as to leave the directory: all objects are in etcd.
    async fn finish_into_etcd(&self, moved: &Moved, gate: Option<(Gate, i64)>) -> anyhow::Result<String> {
        match gate {
            Some((gate, seen)) if gate.passage == Passage::Arriving && gate.id == moved.id => {
                self.open_gate(seen).await?;
                Ok(format!("{} has all objects; start the server with --store etcd", self.etcd_name))
            }
            Some((gate, _)) => bail!("{}: {}", self.etcd_name, gate.words()),
            None => Ok(format!("the objects of {} were moved to {} at {}", self.dir.display(), moved.to, moved.when)),
        }
    }

    async fn fill_etcd(&self, source: &Embedded, gate: Option<(Gate, i64)>) -> anyhow::Result<String> {
        if gate.is_none() {
            self.check_etcd_is_empty().await?;
        }
        // Anew, whatever there was: nothing that an earlier attempt left on its way is to be done any more.
        let (gate, seen) = self.shut_gate(gate.map(|(_, seen)| seen), Passage::Arriving).await?;
        // What an earlier attempt brought may have changed since. Or it is where the directory's objects come from, of the past.
        check_gate(self.etcd.clear(Some(seen)).await?)?;
        let revision = source.revision().await?;
        check_gate(self.etcd.set_base(Some(seen), revision).await?)?;
        // Anew, to go on from there.
        let etcd = store::connect_past_gate(&self.settings).await?;
        let expected = copy_into_etcd(source, &etcd).await?;
        let found = sum_up(&*etcd).await?;
        if found != expected {
            bail!("what is in etcd is not what was read: {found:?}, not {expected:?}; give the same command again");
        }
        // Nobody is to follow how they arrived.
        etcd.compact(etcd.revision().await?).await?;
        let moved = Moved { id: gate.id, to: self.etcd_name.clone(), when: now() };
        embedded::mark_moved(&self.dir, &moved)?;
        self.open_gate(seen).await?;
        Ok(format!("{} objects are in {}; start the server with --store etcd", found.records, self.etcd_name))
    }

    /// On the way here already, or gone from here into this directory.
    fn is_ours_to_fill(&self, gate: &Gate) -> bool {
        let is_begun = gate.passage == Passage::Arriving;
        let is_left = gate.passage == Passage::Left && self.is_made_by(gate);
        gate.other == self.directory_name && (is_begun || is_left)
    }

    async fn check_etcd_is_empty(&self) -> anyhow::Result<()> {
        if !self.etcd.range(Range { limit: 1, ..Range::default() }).await?.records.is_empty() {
            bail!("there are objects in this etcd already; \"etcdctl del --prefix /croft/\" removes them all");
        }
        Ok(())
    }

    async fn shut_gate(&self, seen: Option<i64>, passage: Passage) -> anyhow::Result<(Gate, i64)> {
        let id = format!("{:016x}", getrandom::u64()?);
        let gate = Gate { passage, id, other: self.directory_name.clone(), when: now() };
        let shut = self.etcd.set_gate(seen, Some(&gate)).await?;
        Ok((gate, shut.context("somebody else has begun to move the objects of this etcd")?))
    }

    async fn open_gate(&self, seen: i64) -> anyhow::Result<()> {
        check_gate(self.etcd.set_gate(Some(seen), None).await?.is_some())
    }

    async fn to_directory(&self) -> anyhow::Result<String> {
        let _turn = self.lock_beside()?;
        let done = format!("{} has all objects; start the server with --store embedded", self.dir.display());
        let (gate, seen) = match self.etcd.gate().await? {
            Some((gate, _)) if gate.passage == Passage::Left && self.is_made_by(&gate) => {
                embedded::mark_arrived(&self.dir)?;
                return Ok(done);
            }
            Some(found) if found.0.passage == Passage::Leaving && found.0.other == self.directory_name => found,
            Some((gate, _)) => bail!("{}: {}", self.etcd_name, gate.words()),
            None => {
                self.check_way()?;
                if self.etcd.range(Range { limit: 1, ..Range::default() }).await?.records.is_empty() {
                    bail!("there are no objects in {}", self.etcd_name);
                }
                self.shut_gate(None, Passage::Leaving).await?
            }
        };
        if !self.is_made_by(&gate) {
            self.fill_directory(&gate).await?;
        }
        let left = Gate { passage: Passage::Left, when: now(), ..gate };
        check_gate(self.etcd.set_gate(Some(seen), Some(&left)).await?.is_some())?;
        // Only now: at no moment can both be used.
        embedded::mark_arrived(&self.dir)?;
        Ok(done)
    }

    /// Its file is in the data directory, which may not be there yet.
    fn lock_beside(&self) -> anyhow::Result<DirLock> {
        if let Some(data_dir) = self.dir.parent() {
            create_data_dir(data_dir)?;
        }
        DirLock::beside(&self.dir).context("another command is moving objects into this directory")
    }

    fn is_made_by(&self, gate: &Gate) -> bool {
        embedded::origin(&self.dir).as_ref() == Some(&gate.id) && matches!(embedded::moved(&self.dir), Ok(None))
    }

    /// A directory whose objects were moved away is of the past, and kept aside when the new one is whole; any other is in the way.
    fn check_way(&self) -> anyhow::Result<()> {
        if self.dir.exists() && embedded::moved(&self.dir)?.is_none() {
            bail!("there is a store in {} already; move it away first", self.dir.display());
        }
        Ok(())
    }

    async fn fill_directory(&self, gate: &Gate) -> anyhow::Result<()> {
        let revision = self.etcd.revision().await?;
        let past = self.dir.with_added_extension(format!("moved-{}", Timestamp::now().strftime("%Y%m%d-%H%M%S-%f")));
        let mut restoring = Restoring::begin_move(&self.dir, revision, past)?;
        let lease = restoring.grant(EVENTS_KEPT)?;
        let mut summing = Summing::default();
        let mut pages = Pages::new(&*self.etcd, revision);
        while let Some(records) = pages.next().await? {
            for record in &records {
                summing.add(record.key.as_bytes(), &record.value);
                restoring.add_leased(record, lease_of(record, lease))?;
            }
        }
        Ok(restoring.finish_move(&gate.id, &summing.contents())?)
    }

    async fn abort(&self, to: StoreKind) -> anyhow::Result<String> {
        let _turn = self.lock_for_abort(to)?;
        let Some((gate, seen)) = self.etcd.gate().await? else { bail!("no move of {} is under way", self.etcd_name) };
        let wanted = if to == StoreKind::Etcd { Passage::Arriving } else { Passage::Leaving };
        if gate.passage != wanted || gate.other != self.directory_name {
            bail!("{}: {}", self.etcd_name, gate.words());
        }
        let is_done = match to {
            StoreKind::Etcd => embedded::moved(&self.dir)?.is_some_and(|moved| moved.id == gate.id),
            StoreKind::Embedded => self.is_made_by(&gate),
        };
        if is_done {
            bail!("all objects have been moved already: give the command without --abort to end it");
        }
        match to {
            StoreKind::Etcd => check_gate(self.etcd.clear(Some(seen)).await?)?,
            StoreKind::Embedded => Restoring::discard(&self.dir)?,
        }
        self.open_gate(seen).await?;
        Ok("the move was given up; start the server as before".to_owned())
    }

    /// As long as the command runs that is to be given up, it holds this.
    fn lock_for_abort(&self, to: StoreKind) -> anyhow::Result<Option<DirLock>> {
        let runs = "the move cannot be given up while the command runs: stop it first";
        match to {
            StoreKind::Embedded => Ok(Some(self.lock_beside().context(runs)?)),
            StoreKind::Etcd if self.dir.exists() => Ok(Some(DirLock::take(&self.dir).context(runs)?)),
            // Nobody reads what is gone.
            StoreKind::Etcd => Ok(None),
        }
    }
}

/// Whether the gate is still the one that was seen, as etcd says.
pub(crate) fn check_gate(is_same: bool) -> anyhow::Result<()> {
    if is_same { Ok(()) } else { bail!("the gate of etcd was changed meanwhile; give the same command again") }
}

fn now() -> String {
    format_seconds(Timestamp::now())
}

fn lease_of(record: &Record, lease: LeaseId) -> Option<LeaseId> {
    [EVENTS, SERVERS].iter().any(|prefix| record.key.starts_with(prefix)).then_some(lease)
}

async fn open_embedded(dir: &Path) -> anyhow::Result<std::sync::Arc<Embedded>> {
    let dir = dir.to_owned();
    let opening = tokio::task::spawn_blocking(move || {
        // Nothing is to be forgotten while it is read.
        Embedded::open(&dir, EmbeddedOptions { retention: None, ..EmbeddedOptions::default() })
    });
    let opened = opening.await.context("the store's opening was cut short")?;
    opened.context("cannot open the store; the server must not run")
}

async fn copy_into_etcd(source: &Embedded, etcd: &Etcd) -> anyhow::Result<Contents> {
    let lease = etcd.lease_grant(EVENTS_KEPT).await?;
    let mut summing = Summing::default();
    let mut pages = Pages::new(source, source.revision().await?);
    while let Some(records) = pages.next().await? {
        let (mut ops, mut bytes) = (Vec::new(), 0);
        for record in records {
            summing.add(record.key.as_bytes(), &record.value);
            let size = record.key.len() + record.value.len();
            if !ops.is_empty() && (ops.len() == BATCH || bytes + size > BATCH_BYTES) {
                put(etcd, std::mem::take(&mut ops)).await?;
                bytes = 0;
            }
            bytes += size;
            let lease = lease_of(&record, lease);
            ops.push(Op::Put { key: record.key, value: record.value, lease });
        }
        put(etcd, ops).await?;
    }
    Ok(summing.contents())
}

async fn put(etcd: &Etcd, ops: Vec<Op>) -> anyhow::Result<()> {
    let txn = Txn { compare: Vec::new(), ops };
    // Its values are shared, not copied.
    let ops = txn.ops.clone();
    match etcd.txn(txn).await.map_err(|error| store::refused(error, &ops))? {
        TxnResult::Committed(_) => Ok(()),
        TxnResult::Conflict(_) => bail!("etcd refuses a write that has no condition"),
    }
}

//! The etcd engine: the same promises from a cluster of etcd v3.
//!
//! - [`client`]: members, tokens, retries
//! - [`watch`]: a watch that goes on over lost connections
//! - [`gate`]: shut while the objects are moved to or from another store
//! - [`maintenance`]: how the members are, and what is done for them
//! - [`keys`]: our corner of the cluster's keys; [`errors`]: etcd's answers in our words

mod client;
mod errors;
mod gate;
mod keys;
mod maintenance;
mod proto;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Revision;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Request, Status as Answer};

use crate::stats::Counters;
use crate::status::{self, Status};
use crate::txn::check_key;
use crate::{
    Error, History, LeaseId, Limits, Op, Range, RangeResult, Record, Result, Stats, Store, Txn, TxnResult, WatchItem,
};
use client::{Client, Repeat};
pub use gate::{Gate, Passage};
use keys::Keys;
use proto::compare::{CompareResult, CompareTarget, TargetUnion};
use proto::kv_client::KvClient;
use proto::lease_client::LeaseClient;
use proto::request_op::Request as RawOp;
use watch::Watch;

/// What no etcd takes, however it is set up; below that it is asked.
const LIMITS: Limits = Limits { ops: 4096, bytes: 32 * 1024 * 1024 };
/// Records fetched at once.
const PAGE: usize = 500;

#[derive(Clone)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// Where our keys are.
    pub prefix: String,
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub username: Option<String>,
    pub password: Option<String>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "/croft".to_owned(),
            ca: None,
            cert: None,
            key: None,
            username: None,
            password: None,
        }
    }
}

impl std::fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("ca", &self.ca)
            .field("cert", &self.cert)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Etcd {
    client: Arc<Client>,
    keys: Arc<Keys>,
    watches: Arc<Requests>,
    counters: Counters,
    trusts_progress: bool,
    /// Whether this is no more than one of the servers that the gate is for.
    minds_gate: bool,
    /// When the base was set that we count from.
    base_set: i64,
    /// Gates from before we connected stop no watch, nor does any stop who moves objects.
    gate_since: i64,
    /// Of the members, in their order.
    endpoints: Vec<String>,
    heard: Mutex<maintenance::Heard>,
    last_compaction: Mutex<Option<String>>,
    /// What this server has had forgotten.
    compacted: AtomicU64,
    /// Held while members are defragmented.
    defragmenting: tokio::sync::Mutex<()>,
}

/// The sending ends of open watches.
#[derive(Debug, Default)]
struct Requests {
    open: Mutex<Vec<mpsc::Sender<proto::WatchRequest>>>,
}

impl Requests {
    fn add(&self, sender: mpsc::Sender<proto::WatchRequest>) {
        let mut open = self.open.lock();
        open.retain(|sender| !sender.is_closed());
        open.push(sender);
    }

    fn count(&self) -> usize {
        self.open.lock().iter().filter(|sender| !sender.is_closed()).count()
    }
}

impl Etcd {
    /// Fails when no member answers, when they do not let us in, or when the objects are elsewhere.
    pub async fn connect(options: EtcdOptions) -> Result<Arc<Self>> {
        let etcd = Self::reach(options, true).await?;
        etcd.refuse_at_gate().await?;
        Ok(etcd)
    }

    /// For who moves the objects: the gate does not stop him.
    pub async fn connect_past_gate(options: EtcdOptions) -> Result<Arc<Self>> {
        Self::reach(options, false).await
    }

    async fn reach(options: EtcdOptions, minds_gate: bool) -> Result<Arc<Self>> {
        let client = Client::new(&options)?;
        client.authenticate().await.map_err(|status| errors::error(&status))?;
        let statuses = client.statuses().await;
        let trusts_progress =
            statuses.iter().all(|status| status.as_ref().is_some_and(|status| has_ordered_progress(&status.version)));
        let mut etcd = Self {
            client: Arc::new(client),
            keys: Arc::new(Keys::new(&options.prefix)),
            watches: Arc::default(),
            counters: Counters::default(),
            trusts_progress,
            minds_gate,
            base_set: 0,
            gate_since: i64::MAX,
            endpoints: options.endpoints.clone(),
            heard: Mutex::default(),
            last_compaction: Mutex::default(),
            compacted: AtomicU64::default(),
            defragmenting: tokio::sync::Mutex::default(),
        };
        let (base, base_set) = etcd.stored_base().await?;
        etcd.base_set = base_set;
        etcd.keys = Arc::new(Keys::new(&options.prefix).with_base(base));
        let revision = etcd.newest().await?;
        if minds_gate {
            etcd.gate_since = etcd.keys.raw(revision);
        }
        tracing::info!(members = etcd.client.members(), %revision, trusts_progress, "etcd connected");
        Ok(Arc::new(etcd))
    }

    async fn kv<T: Clone, R, F>(
        &self,
        message: T,
        repeat: Repeat,
        rpc: impl Fn(KvClient<Channel>, Request<T>) -> F,
    ) -> Result<R, Answer>
    where
        F: Future<Output = Result<tonic::Response<R>, Answer>>,
    {
        let rpc = |channel, request| {
            let client = KvClient::new(channel).max_decoding_message_size(usize::MAX);
            rpc(client, request)
        };
        self.client.call(message, repeat, rpc).await
    }

    async fn raw_range(&self, request: proto::RangeRequest) -> Result<proto::RangeResponse, Answer> {
        self.kv(request, Repeat::Safe, |mut kv, request| async move { kv.range(request).await }).await
    }

    /// A linearizable read of nothing.
    async fn newest(&self) -> Result<Revision> {
        let request = proto::RangeRequest { key: self.keys.progress_key(), keys_only: true, ..Default::default() };
        let response = self.raw_range(request).await.map_err(|status| errors::error(&status))?;
        Ok(self.header_revision(response.header))
    }

    /// etcd says how far it has forgotten only to a watch that asks for too much.
    async fn oldest(&self) -> Result<Revision> {
        use futures::StreamExt;
        let start = (String::new(), Revision(1));
        let (client, keys) = (Arc::clone(&self.client), Arc::clone(&self.keys));
        let watch = Watch::new(client, keys, Arc::default(), start, (true, i64::MAX));
        let first = tokio::time::timeout(Duration::from_secs(5), watch.into_stream().next()).await;
        match first {
            Ok(Some(Err(Error::Compacted { oldest, .. }))) => Ok(oldest),
            Ok(Some(Err(err))) => Err(err),
            _ => Ok(Revision::ZERO),
        }
    }

    fn has_compacted(&self, revision: Revision) {
        self.compacted.fetch_max(revision.0, Ordering::AcqRel);
        *self.last_compaction.lock() = Some(status::now());
    }

    async fn range_error(&self, status: &Answer, requested: Revision) -> Error {
        let found = if errors::is_compacted(status) {
            self.oldest().await.map(|oldest| Error::Compacted { requested, oldest })
        } else if errors::is_future(status) {
            self.newest().await.map(|newest| Error::Future { requested, newest })
        } else {
            return errors::error(status);
        };
        found.unwrap_or_else(|err| err)
    }

    async fn range_pages(&self, range: Range) -> Result<RangeResult> {
        let (mut first, end) = self.keys.prefix(&range.prefix);
        if !range.after.is_empty() {
            let mut after = self.keys.theirs(&range.after);
            after.push(0);
            first = first.max(after);
        }
        if let Some(requested) = range.at.filter(|at| *at <= self.keys.base()) {
            return Err(Error::Compacted { requested, oldest: self.oldest().await?.max(self.keys.base()) });
        }
        let mut result = RangeResult::default();
        let mut at = range.at;
        // An empty range would be one key to etcd.
        if first >= end {
            let newest = self.newest().await?;
            return Ok(RangeResult { revision: at.unwrap_or(newest), ..result });
        }
        loop {
            let left = if range.limit == 0 { PAGE } else { (range.limit - result.records.len()).min(PAGE) };
            let request = proto::RangeRequest {
                key: first,
                range_end: end.clone(),
                limit: i64::try_from(left).unwrap_or(i64::MAX),
                revision: at.map_or(0, |at| self.keys.raw(at)),
                keys_only: false,
            };
            let response = match self.raw_range(request).await {
                Ok(response) => response,
                Err(status) => return Err(self.range_error(&status, at.unwrap_or_default()).await),
            };
            if at.is_none() {
                self.refuse_filled().await?;
            }
            // All pages are of the moment of the first.
            let moment = *at.get_or_insert_with(|| self.header_revision(response.header));
            result.revision = moment;
            first = response.kvs.last().map(|kv| [kv.key.as_slice(), &[0]].concat()).unwrap_or_default();
            result.records.extend(response.kvs.into_iter().filter_map(|kv| self.record(kv)));
            result.more = response.more;
            if !response.more || first.is_empty() || (range.limit > 0 && result.records.len() >= range.limit) {
                return Ok(result);
            }
        }
    }

    fn header_revision(&self, header: Option<proto::ResponseHeader>) -> Revision {
        header.map_or(Revision::ZERO, |header| self.keys.revision(header.revision))
    }

    fn record(&self, kv: proto::KeyValue) -> Option<Record> {
        let revision = self.keys.revision(kv.mod_revision);
        Some(Record { key: self.keys.ours(kv.key)?, value: Bytes::from(kv.value), revision })
    }

    fn raw_txn(&self, txn: &Txn) -> proto::TxnRequest {
        let compare = txn.compare.iter().map(|compare| proto::Compare {
            result: CompareResult::Equal as i32,
            target: CompareTarget::Mod as i32,
            key: self.keys.theirs(&compare.key),
            target_union: Some(TargetUnion::ModRevision(self.keys.raw(compare.revision))),
        });
        let success = txn.ops.iter().map(|op| proto::RequestOp {
            request: Some(match op {
                Op::Put { key, value, lease } => RawOp::RequestPut(proto::PutRequest {
                    key: self.keys.theirs(key),
                    value: value.to_vec(),
                    lease: lease.map_or(0, |lease| lease.0),
                }),
                Op::Delete { key } => RawOp::RequestDeleteRange(proto::DeleteRangeRequest {
                    key: self.keys.theirs(key),
                    ..Default::default()
                }),
            }),
        });
        self.guard(proto::TxnRequest { compare: compare.collect(), success: success.collect(), failure: Vec::new() })
    }

    async fn commit(&self, txn: Txn) -> Result<TxnResult> {
        txn.check(LIMITS)?;
        let started = Instant::now();
        let repeat = if txn.ops.is_empty() { Repeat::Safe } else { Repeat::IfUnsent };
        let answer = self.kv(self.raw_txn(&txn), repeat, |mut kv, request| async move { kv.txn(request).await }).await;
        let response = answer.map_err(|status| {
            let lease = txn.ops.iter().find_map(|op| match op {
                Op::Put { lease, .. } => *lease,
                Op::Delete { .. } => None,
            });
            match lease {
                Some(lease) if errors::is_no_lease(&status) => Error::NoSuchLease(lease),
                _ => errors::error(&status),
            }
        })?;
        let revision = self.header_revision(response.header);
        if !response.succeeded {
            if let Some(error) = self.stopped_by_gate(&response) {
                return Err(error);
            }
            Counters::add(&self.counters.conflicts, 1);
            return Ok(TxnResult::Conflict(revision));
        }
        self.counters.latency.record(started.elapsed());
        Counters::add(&self.counters.commits, 1);
        Counters::add(&self.counters.transactions, 1);
        Ok(TxnResult::Committed(revision))
    }

    async fn send_progress(&self) -> Result<()> {
        if self.trusts_progress {
            for sender in &*self.watches.open.lock() {
                // One that is full has been asked already.
                let _ = sender.try_send(watch::progress_request());
            }
            return Ok(());
        }
        let put = proto::PutRequest { key: self.keys.progress_key(), value: Vec::new(), lease: 0 };
        let sent = self.kv(put, Repeat::Safe, |mut kv, request| async move { kv.put(request).await }).await;
        sent.map(drop).map_err(|status| errors::error(&status))
    }

    async fn renew(&self, lease: LeaseId) -> Result<Duration> {
        let ask = |channel, request: Request<proto::LeaseKeepAliveRequest>| async move {
            let (metadata, _, message) = request.into_parts();
            // The stream stays open until the answer is there.
            let once = stream::once(async move { message });
            let mut request = Request::new(futures::StreamExt::chain(once, stream::pending()));
            *request.metadata_mut() = metadata;
            let mut answers = LeaseClient::new(channel).lease_keep_alive(request).await?.into_inner();
            let answer = answers.message().await?;
            answer.map(tonic::Response::new).ok_or_else(|| Answer::unavailable("the stream ended without an answer"))
        };
        let answer = self.client.call(proto::LeaseKeepAliveRequest { id: lease.0 }, Repeat::Safe, ask).await;
        let answer = answer.map_err(|status| lease_error(&status, lease))?;
        match u64::try_from(answer.ttl) {
            Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
            _ => Err(Error::NoSuchLease(lease)),
        }
    }
}

impl Store for Etcd {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Record>>> {
        let key = key.to_owned();
        async move {
            check_key(&key)?;
            let request = proto::RangeRequest { key: self.keys.theirs(&key), ..Default::default() };
            let response = self.raw_range(request).await.map_err(|status| errors::error(&status))?;
            Ok(response.kvs.into_iter().next().and_then(|kv| self.record(kv)))
        }
        .boxed()
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult>> {
        self.range_pages(range).boxed()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult>> {
        self.commit(txn).boxed()
    }

    fn watch(&self, prefix: &str, after: Revision) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem>>>> {
        let prefix = prefix.to_owned();
        async move {
            let newest = self.newest().await?;
            if after > newest {
                return Err(Error::Future { requested: after, newest });
            }
            let base = self.keys.base();
            if after < base {
                return Err(Error::Compacted { requested: after, oldest: base });
            }
            let (client, keys) = (Arc::clone(&self.client), Arc::clone(&self.keys));
            let watches = Arc::clone(&self.watches);
            let settings = (self.trusts_progress, self.gate_since);
            Ok(Watch::new(client, keys, watches, (prefix, after), settings).into_stream())
        }
        .boxed()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        self.newest().boxed()
    }

    fn request_progress(&self) -> BoxFuture<'_, Result<()>> {
        self.send_progress().boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        async move {
            let raw = self.keys.raw(revision);
            if raw < 0 {
                return Ok(());
            }
            let request = proto::CompactionRequest { revision: raw, physical: false };
            let answer =
                self.kv(request, Repeat::Safe, |mut kv, request| async move { kv.compact(request).await }).await;
            match answer {
                Ok(_) => {
                    self.has_compacted(revision);
                    Ok(())
                }
                Err(status) if errors::is_compacted(&status) => Ok(()),
                Err(status) => Err(self.range_error(&status, revision).await),
            }
        }
        .boxed()
    }

    fn compacted(&self) -> Revision {
        Revision(self.compacted.load(Ordering::Acquire))
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        async move {
            let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
            let request = proto::LeaseGrantRequest { ttl: i64::try_from(seconds.max(1)).unwrap_or(i64::MAX) };
            // A grant whose answer was lost leaves a lease without keys, which ends by itself.
            let grant = |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await };
            let answer = self.client.call(request, Repeat::Safe, grant).await;
            answer.map(|granted| LeaseId(granted.id)).map_err(|status| errors::error(&status))
        }
        .boxed()
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration>> {
        self.renew(lease).boxed()
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        async move {
            let request = proto::LeaseRevokeRequest { id: lease.0 };
            let revoke = |channel, request| async move { LeaseClient::new(channel).lease_revoke(request).await };
            let answer = self.client.call(request, Repeat::IfUnsent, revoke).await;
            answer.map(drop).map_err(|status| lease_error(&status, lease))
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.client.closed.cancel();
        async { Ok(()) }.boxed()
    }

    fn status(&self) -> BoxFuture<'_, Result<Status>> {
        self.ask_status().boxed()
    }

    fn defragment(&self, history: History) -> BoxFuture<'_, Result<()>> {
        self.defragment_members(history).boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        self.compare_members().boxed()
    }

    fn stats(&self) -> Stats {
        let heard = self.heard.lock().clone();
        Stats {
            watchers: u64::try_from(self.watches.count()).unwrap_or(u64::MAX),
            size_bytes: heard.size_bytes,
            in_use_bytes: heard.in_use_bytes,
            reclaimable_bytes: heard.size_bytes.saturating_sub(heard.in_use_bytes),
            is_damaged: heard.alarms.iter().any(|alarm| alarm == "CORRUPT"),
            alarms: heard.alarms,
            read_only: heard.read_only,
            ..self.counters.snapshot()
        }
    }
}

fn lease_error(status: &Answer, lease: LeaseId) -> Error {
    if errors::is_no_lease(status) { Error::NoSuchLease(lease) } else { errors::error(status) }
}

/// Before 3.4.25 and 3.5.8 the answer to a progress request could overtake events.
fn has_ordered_progress(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    let version = (part(), part(), part());
    version >= (3, 5, 8) || ((3, 4, 25)..(3, 5, 0)).contains(&version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mended_versions_are_trusted_with_progress() {
        let cases = [
            ("3.4.23", false),
            ("3.4.25", true),
            ("3.4.35", true),
            ("3.5.0", false),
            ("3.5.7", false),
            ("3.5.8", true),
            ("3.5.16-rc.1", true),
            ("3.6.0", true),
            ("", false),
        ];
        for (version, expected) in cases {
            assert_eq!(has_ordered_progress(version), expected, "{version}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let options = EtcdOptions { password: Some("hunter2".to_owned()), ..EtcdOptions::default() };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}

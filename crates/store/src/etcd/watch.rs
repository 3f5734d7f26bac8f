//! A watch that outlives its connections, but not the objects: when etcd is filled with others, all that there was is cleared
//! first, and whoever took that for deletions would end every machine. The gate is shut before, and the same watch shows it.
//!
//! It asks for changes from the last revision that it has delivered, that one included, and drops what it has seen.
//! Asking one revision back costs nothing and makes etcd refuse a start at its compaction point, where versions
//! before 3.4.35 and 3.5.18 have lost deletions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::Revision;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::mpsc;
use tonic::Streaming;

use super::Requests;
use super::client::{Client, is_member_failing, is_stale_token};
use super::keys::Keys;
use super::proto::event::EventType;
use super::proto::watch_client::WatchClient;
use super::proto::watch_request::RequestUnion;
use super::proto::{Event as Raw, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use super::{errors, gate};
use crate::{Error, Event, Result, WatchItem};

/// The first answer to a new watch must come within this.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LAST: Duration = Duration::from_secs(2);
/// The number of answers that concern no single watch.
const NO_WATCH: i64 = -1;

pub(super) struct Watch {
    pub(super) client: Arc<Client>,
    pub(super) keys: Arc<Keys>,
    pub(super) open: Arc<Requests>,
    /// In the caller's terms.
    pub(super) prefix: String,
    /// Answers to progress requests keep their place among the events; if not, a key is written instead.
    pub(super) trusts_progress: bool,
    /// A gate that was shut after this, as etcd counts, to fill etcd with other objects ends the watch.
    pub(super) gate_since: i64,
    /// Everything up to here has been delivered.
    pub(super) last: Revision,
    connection: Option<Connection>,
    ready: VecDeque<WatchItem>,
    fragments: Vec<Raw>,
    backoff: Duration,
    is_over: bool,
}

/// By which member, and what comes from it.
type Connection = (usize, Streaming<WatchResponse>);

impl Watch {
    pub(super) fn new(
        client: Arc<Client>,
        keys: Arc<Keys>,
        open: Arc<Requests>,
        (prefix, last): (String, Revision),
        (trusts_progress, gate_since): (bool, i64),
    ) -> Self {
        Self {
            client,
            keys,
            open,
            prefix,
            trusts_progress,
            gate_since,
            last,
            connection: None,
            ready: VecDeque::new(),
            fragments: Vec::new(),
            backoff: BACKOFF_FIRST,
            is_over: false,
        }
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, Result<WatchItem>> {
        stream::unfold(self, |mut watch| async move {
            if watch.is_over {
                return None;
            }
            let closed = watch.client.closed.clone();
            let item = tokio::select! {
                () = closed.cancelled() => Err(Error::Unavailable { reason: "the store has been closed".to_owned() }),
                item = watch.next() => item,
            };
            watch.is_over = item.is_err();
            Some((item, watch))
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<WatchItem> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            let Some((member, connection)) = &mut self.connection else {
                self.connect().await;
                continue;
            };
            let message = tokio::select! {
                message = connection.message() => message,
                // Whoever found that it does not answer has found it for us, too.
                () = self.client.left(*member) => {
                    self.drop_connection();
                    continue;
                }
            };
            match message {
                Ok(Some(response)) => self.take(response).await?,
                Ok(None) => self.disconnect().await,
                Err(status) => {
                    tracing::debug!(%status, "etcd watch interrupted");
                    self.renew_token_if(is_stale_token(&status)).await;
                    self.disconnect().await;
                }
            }
        }
    }

    /// One attempt; on failure there is still no connection.
    async fn connect(&mut self) {
        let (number, channel) = self.client.member();
        let (sender, mut receiver) = mpsc::channel(4);
        // With what is written instead of asking for progress.
        let (key, range_end) = self.keys.prefix_with_gate(&self.prefix);
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: self.keys.raw(self.last).max(1),
            progress_notify: true,
            fragment: true,
        };
        // The buffer is empty, so there is room.
        let _ = sender.try_send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
        let requests = stream::poll_fn(move |context| receiver.poll_recv(context));
        let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
        let answer = tokio::select! {
            answer = tokio::time::timeout(CREATE_TIMEOUT, client.watch(self.client.request(requests))) => answer,
            () = self.client.left(number) => return self.disconnect().await,
        };
        match answer {
            Ok(Ok(response)) => {
                self.connection = Some((number, response.into_inner()));
                self.open.add(sender);
                return;
            }
            Ok(Err(status)) => {
                self.renew_token_if(is_stale_token(&status)).await;
                if is_member_failing(&status) {
                    self.client.leave(number);
                }
                tracing::debug!(%status, "etcd watch refused");
            }
            Err(_) => self.client.leave(number),
        }
        self.disconnect().await;
    }

    /// Leaves a pause before the next attempt.
    async fn disconnect(&mut self) {
        self.drop_connection();
        tokio::time::sleep(self.backoff).await;
        self.backoff = (self.backoff * 2).min(BACKOFF_LAST);
    }

    fn drop_connection(&mut self) {
        self.connection = None;
        self.fragments.clear();
    }

    async fn renew_token_if(&self, stale: bool) {
        if stale && let Err(status) = self.client.authenticate().await {
            tracing::warn!(%status, "etcd does not let us in");
        }
    }

    async fn take(&mut self, response: WatchResponse) -> Result<()> {
        if response.canceled {
            return self.canceled(&response).await;
        }
        self.backoff = BACKOFF_FIRST;
        if response.created {
            return Ok(());
        }
        let is_progress = response.events.is_empty() && self.fragments.is_empty() && !response.fragment;
        if is_progress {
            // What etcd sends by itself is in order in every version; it names the watch.
            if self.trusts_progress || response.watch_id != NO_WATCH {
                self.progress(response.header.map_or(Revision::ZERO, |header| self.keys.revision(header.revision)));
            }
            return Ok(());
        }
        self.fragments.extend(response.events);
        if !response.fragment {
            let events = std::mem::take(&mut self.fragments);
            self.deliver(events)?;
        }
        Ok(())
    }

    async fn canceled(&mut self, response: &WatchResponse) -> Result<()> {
        if response.compact_revision > 0 {
            return Err(Error::Compacted {
                requested: self.last,
                oldest: self.keys.revision(response.compact_revision),
            });
        }
        let status = tonic::Status::unknown(response.cancel_reason.clone());
        if response.cancel_reason.contains("permission denied") {
            return Err(errors::error(&tonic::Status::permission_denied(response.cancel_reason.clone())));
        }
        tracing::debug!(reason = %response.cancel_reason, "etcd watch cancelled");
        // 3.4 gives no reason at all for a token that has run out.
        self.renew_token_if(is_stale_token(&status) || response.cancel_reason.is_empty()).await;
        self.disconnect().await;
        Ok(())
    }

    fn progress(&mut self, at: Revision) {
        if at >= self.last {
            self.last = at;
            self.ready.push_back(WatchItem::Progress(at));
        }
    }

    /// One item per transaction.
    fn deliver(&mut self, events: Vec<Raw>) -> Result<()> {
        let mut transaction: Vec<Event> = Vec::new();
        let mut newest = self.last;
        for event in events {
            let Some(kv) = event.kv else { continue };
            let at = self.keys.revision(kv.mod_revision);
            if at <= self.last {
                continue;
            }
            newest = at;
            if kv.mod_revision > self.gate_since && self.keys.is_gate_key(&kv.key) {
                gate::refuse_filling(&kv.value)?;
            }
            if self.keys.is_progress_key(&kv.key) {
                flush(&mut self.ready, &mut transaction);
                self.ready.push_back(WatchItem::Progress(at));
                continue;
            }
            let Some(key) = self.keys.ours(kv.key).filter(|key| key.starts_with(&self.prefix)) else { continue };
            if transaction.first().is_some_and(|first| first.revision != at) {
                flush(&mut self.ready, &mut transaction);
            }
            let value = (event.r#type != EventType::Delete as i32).then(|| Bytes::from(kv.value));
            transaction.push(Event { key, revision: at, value });
        }
        flush(&mut self.ready, &mut transaction);
        self.last = newest;
        Ok(())
    }
}

fn flush(ready: &mut VecDeque<WatchItem>, transaction: &mut Vec<Event>) {
    if !transaction.is_empty() {
        ready.push_back(WatchItem::Events(std::mem::take(transaction)));
    }
}

pub(super) fn progress_request() -> WatchRequest {
    WatchRequest { request_union: Some(RequestUnion::ProgressRequest(WatchProgressRequest {})) }
}

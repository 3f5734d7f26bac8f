//! WATCH: a cursor into a collection's history, turned into lines of JSON.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use croft_meta::{ApiError, Revision};
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::answer::{self, Answer, BoxError};
use crate::cache::{Change, Collection, Cursor, Object};
use crate::call::{Call, Target};
use crate::clock;
use crate::conversion;
use crate::encoding::Head;
use crate::metrics::WatchGuard;
use crate::negotiate::{Format, Output, Shape};
use crate::options::ListOptions;
use crate::server::ApiServer;
use crate::table;
use crate::verbs::get;
use crate::verbs::list::not_in_the_future;
use crate::verbs::selection::Selection;
use crate::write::{in_version, is_served_as_stored, storage_gvk};

/// A chunk is sent when it has grown to this, however much there is to send.
const CHUNK: usize = 64 << 10;
/// Of the initial objects of a kind that a webhook converts.
const CONVERTED_AT_ONCE: usize = 200;
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

pub(crate) async fn watch(call: &Call, target: &Target, output: Output) -> Result<Answer, ApiError> {
    if output.format == Format::Yaml {
        return Err(ApiError::not_acceptable("a watch can only be answered in application/json"));
    }
    let options = ListOptions::parse(&call.query, true)?;
    let selection = Selection::parse(target, &options)?;
    let start = Start::find(call, target, &options).await?;
    let include = get::include(call)?;
    let watcher = Watcher::new(call, target, (output.shape, include), &options, selection, start);
    let frames = stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next_chunk().await?;
        Some((Ok::<_, BoxError>(Frame::data(chunk)), watcher))
    });
    let template = answer::bytes(200, output.content_type(), Bytes::new());
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    *answer.headers_mut() = template.headers().clone();
    Ok(answer)
}

/// Where a watch begins.
#[derive(Debug)]
struct Start {
    initial: Vec<Arc<Object>>,
    /// `Err` tells the client, in the stream, that it must list anew.
    cursor: Result<Cursor, ApiError>,
}

impl Start {
    async fn find(call: &Call, target: &Target, options: &ListOptions) -> Result<Self, ApiError> {
        let cache = &call.server.cache;
        let collection = cache.collection(target.storage_key());
        let wanted = options.revision()?;
        match wanted {
            None => drop(cache.fresh().await?),
            Some(Revision::ZERO) => {}
            Some(revision) => not_in_the_future(call, revision).await?,
        }
        let from_state = match options.send_initial_events {
            Some(send) => send,
            None => wanted.is_none_or(|r| r == Revision::ZERO),
        };
        if from_state {
            let (initial, cursor) = collection.snapshot(&target.namespace);
            return Ok(Self { initial, cursor: Ok(cursor) });
        }
        let after = wanted.filter(|r| *r != Revision::ZERO).unwrap_or_else(|| cache.applied());
        let cursor = collection
            .cursor_after(after)
            .map_err(|e| ApiError::expired(format!("too old resource version: {after} ({})", e.oldest)));
        Ok(Self { initial: Vec::new(), cursor })
    }
}

struct Watcher {
    server: Arc<ApiServer>,
    target: Target,
    shape: Shape,
    include: table::Include,
    selection: Selection,
    collection: Arc<Collection>,
    changed: tokio::sync::watch::Receiver<u64>,
    cursor: Result<Cursor, ApiError>,
    initial: std::vec::IntoIter<Arc<Object>>,
    /// The bookmark that ends the initial events is still owed.
    owes_initial_end: bool,
    /// Everything up to here has been looked at.
    seen: Revision,
    head: Head,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    sent_columns: bool,
    is_over: bool,
    _counted: WatchGuard,
}

impl Watcher {
    fn new(
        call: &Call,
        target: &Target,
        (shape, include): (Shape, table::Include),
        options: &ListOptions,
        selection: Selection,
        start: Start,
    ) -> Self {
        let server = Arc::clone(&call.server);
        let collection = server.cache.collection(target.storage_key());
        let timeout = options.timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let now = Instant::now();
        let end = now + timeout;
        Self {
            shape,
            include,
            changed: collection.subscribe(),
            owes_initial_end: options.send_initial_events == Some(true) && options.allow_bookmarks,
            seen: server.cache.applied(),
            head: Head::new(
                &storage_gvk(target).api_version(),
                Some(&target.gvk().api_version()),
                target.served.kind(),
            ),
            bookmarks: options.allow_bookmarks,
            next_bookmark: now + BOOKMARK_EVERY.min(timeout.saturating_sub(BOOKMARK_BEFORE_END)),
            _counted: server.metrics.watch_started(target.group(), target.plural()),
            server,
            target: target.clone(),
            selection,
            collection,
            cursor: start.cursor,
            initial: start.initial.into_iter(),
            end,
            sent_columns: false,
            is_over: false,
        }
    }

    /// The next lines, or `None` when the watch is over. Safe to drop at any await: it only waits there.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        loop {
            if self.is_over {
                return None;
            }
            self.write_initial(&mut out).await;
            let is_current = self.write_changes(&mut out).await;
            if !out.is_empty() {
                return Some(out.freeze());
            }
            if !is_current {
                // All of what was looked at is of no interest here; there is more.
                continue;
            }
            let stop = self.server.stopping();
            tokio::select! {
                changed = self.changed.changed() => self.is_over |= changed.is_err(),
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark += BOOKMARK_EVERY;
                    self.catch_up(&mut out).await;
                    self.write_bookmark(&mut out, false);
                }
                () = tokio::time::sleep_until(self.end) => self.is_over = true,
                () = stop.cancelled() => self.is_over = true,
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
        }
    }

    /// Writes all that is there, so that a bookmark can vouch for it.
    async fn catch_up(&mut self, out: &mut BytesMut) {
        while !self.is_over && !self.write_changes(out).await {}
    }

    async fn write_initial(&mut self, out: &mut BytesMut) {
        if self.initial.len() > 0
            && self.target.served.conversion.is_some()
            && let Err(error) = self.write_converted_initial(out).await
        {
            self.end_with(out, &error);
            return;
        }
        while out.len() < CHUNK {
            let Some(object) = self.initial.next() else { break };
            if self.selection.matches(&object) {
                self.write_event(out, "ADDED", &object);
            }
        }
        if self.owes_initial_end && self.initial.len() == 0 {
            self.owes_initial_end = false;
            self.write_bookmark(out, true);
        }
    }

    /// As many initial events as are converted at once.
    async fn write_converted_initial(&mut self, out: &mut BytesMut) -> Result<(), ApiError> {
        let some = self.initial.by_ref().take(CONVERTED_AT_ONCE).collect();
        for object in conversion::objects(&self.server, &self.target, some).await? {
            if self.selection.matches(&object) {
                self.write_event(out, "ADDED", &object);
            }
        }
        Ok(())
    }

    /// Tells the client why there is no more. The line still goes out; the next call ends the stream.
    fn end_with(&mut self, out: &mut BytesMut, error: &ApiError) {
        write_line(out, "ERROR", &[error.to_status().to_string().as_bytes()]);
        self.is_over = true;
    }

    /// Says whether that was all there is.
    async fn write_changes(&mut self, out: &mut BytesMut) -> bool {
        if self.initial.len() > 0 {
            return false;
        }
        if self.is_over {
            return true;
        }
        // Read before the changes: all changes up to here are then in the history.
        let applied = self.server.cache.applied();
        let mut changes = Vec::new();
        let read = match &mut self.cursor {
            Ok(cursor) => self.collection.read(cursor, CHUNK, &mut changes).map_err(|e| {
                let text = format!("the watch fell too far behind (events before {} are gone)", e.oldest);
                ApiError::expired(text)
            }),
            Err(error) => Err(error.clone()),
        };
        let complete = match read {
            Ok(complete) => complete,
            Err(error) => {
                self.end_with(out, &error);
                return true;
            }
        };
        let changes = match conversion::changes(&self.server, &self.target, changes).await {
            Ok(changes) => changes,
            Err(error) => {
                self.end_with(out, &error);
                return true;
            }
        };
        for change in &changes {
            self.write_change(out, change);
            self.seen = self.seen.max(change.revision);
        }
        if complete {
            self.seen = self.seen.max(applied);
        }
        complete
    }

    fn write_change(&mut self, out: &mut BytesMut, change: &Change) {
        if !self.target.namespace.is_empty() && change.object.namespace() != self.target.namespace {
            return;
        }
        let was = change.previous.as_ref().filter(|o| self.selection.matches(o)).cloned();
        if change.is_deletion {
            if was.is_some() {
                self.write_event(out, "DELETED", &change.object);
            }
            return;
        }
        match (was, self.selection.matches(&change.object)) {
            (Some(_), true) => self.write_event(out, "MODIFIED", &change.object),
            (None, true) => self.write_event(out, "ADDED", &change.object),
            // It left the selection: gone for this client, in the last state that it knew.
            (Some(previous), false) => self.write_event(out, "DELETED", &previous.deleted(change.revision)),
            (None, false) => {}
        }
    }

    fn write_event(&mut self, out: &mut BytesMut, kind: &str, object: &Object) {
        let is_stored_as_served = is_served_as_stored(&self.target);
        if self.shape == Shape::Whole && is_stored_as_served {
            let (first, rest) = self.head.pieces(&object.bytes);
            write_line(out, kind, &[first, rest]);
            return;
        }
        if let Shape::Partial(version) = self.shape
            && is_stored_as_served
            && let Some(metadata) = object.metadata()
        {
            let head = format!(r#"{{"apiVersion":"meta.k8s.io/{version}","kind":"PartialObjectMetadata","metadata":"#);
            write_line(out, kind, &[head.as_bytes(), metadata.as_bytes(), b"}"]);
            return;
        }
        let whole = in_version(object, &self.target);
        let shaped = self.shaped(&whole);
        write_line(out, kind, &[shaped.to_string().as_bytes()]);
    }

    fn shaped(&mut self, object: &Value) -> Value {
        match self.shape {
            Shape::Whole => object.clone(),
            Shape::Partial(version) => table::partial_metadata(object, version),
            Shape::Table(version) => {
                let revision = croft_meta::object::resource_version(object);
                self.table(object, json!({ "resourceVersion": revision }), version)
            }
        }
    }

    /// A table of one row; only the first one of a watch carries the columns.
    fn table(&mut self, object: &Value, metadata: Value, version: &str) -> Value {
        let printer = table::Printer::new(&self.target.served);
        let row = printer.row(object, self.include, version, clock::now_seconds());
        let is_first = !std::mem::replace(&mut self.sent_columns, true);
        table::document(version, metadata, is_first.then(|| printer.columns()), vec![row])
    }

    fn write_bookmark(&mut self, out: &mut BytesMut, ends_initial: bool) {
        let mut metadata = json!({ "resourceVersion": self.seen.to_string() });
        if ends_initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let gvk = self.target.gvk();
        let object = match self.shape {
            Shape::Whole => {
                json!({ "kind": gvk.kind, "apiVersion": gvk.api_version(), "metadata": metadata })
            }
            Shape::Partial(version) => json!({
                "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
            }),
            Shape::Table(version) => {
                let bare = json!({ "kind": gvk.kind, "apiVersion": gvk.api_version(), "metadata": metadata });
                self.table(&bare, json!({ "resourceVersion": self.seen.to_string() }), version)
            }
        };
        write_line(out, "BOOKMARK", &[object.to_string().as_bytes()]);
    }
}

/// `{"type":"ADDED","object":...}` and a newline.
fn write_line(out: &mut BytesMut, kind: &str, object: &[&[u8]]) {
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    for piece in object {
        out.put_slice(piece);
    }
    out.put_slice(b"}\n");
}

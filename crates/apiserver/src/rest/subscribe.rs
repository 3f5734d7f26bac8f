//! `subscribe`: changes of many kinds over one WebSocket.
//!
//! The client names a kind, and from there on gets `resource.create`, `resource.change` and `resource.remove` with the
//! object dressed as in lists, until it says `stop` or may no longer look. Each subscription is a place in the history of
//! its kind: a client that does not read loses its place and is told so (`resource.error`, `resource.stop`), and nothing
//! gathers on its behalf.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, Revision};
use futures::future::select_all;
use futures::{FutureExt, SinkExt, StreamExt};
use http::request::Parts;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::dress::Dresser;
use super::schema::{Schema, own_namespaces};
use crate::answer::Answer;
use crate::auth::ANONYMOUS;
use crate::cache::{Change, Collection, Cursor};
use crate::call::Call;
use crate::options::{ListOptions, parse_revision};
use crate::request::{Query, RequestInfo};
use crate::verbs::list::not_in_the_future;
use crate::verbs::selection::Selection;
use crate::websocket::{Handshake, upgraded};

/// As often as Steve does. It also is when rights are looked at again.
const PING: Duration = Duration::from_secs(5);
const MAX_SUBSCRIPTIONS: usize = 250;
/// Of changes, that are sent before others get their turn.
const CHUNK: usize = 64 << 10;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

pub(crate) fn is_subscription(info: &RequestInfo) -> bool {
    info.verb == "get" && matches!(info.path.as_str(), "/v1/subscribe" | "/v1/harvester/subscribe")
}

/// 101; the changes follow.
pub(crate) fn open(call: Call, parts: &mut Parts) -> Result<Answer, ApiError> {
    if call.user.name == ANONYMOUS {
        return Err(ApiError::new(401, "Unauthorized", "must authenticate"));
    }
    let handshake = Handshake::parse(&parts.headers)?;
    let client = parts.extensions.remove::<OnUpgrade>();
    let client = client.ok_or_else(|| ApiError::bad_request("websocket: this connection cannot be upgraded"))?;
    let server = Arc::clone(&call.server);
    server.spawn(async move {
        match upgraded(client).await {
            Ok(socket) => Session { call, socket, subscriptions: Vec::new() }.run().await,
            Err(error) => tracing::debug!(%error, "a client went away while its connection was opened"),
        }
    });
    Ok(handshake.answer())
}

/// What a client sends.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wish {
    resource_type: String,
    resource_version: String,
    namespace: String,
    id: String,
    selector: String,
    stop: bool,
}

impl Wish {
    fn is_about(&self, other: &Self) -> bool {
        (&self.resource_type, &self.namespace, &self.id, &self.selector)
            == (&other.resource_type, &other.namespace, &other.id, &other.selector)
    }

    fn event(&self, name: &str) -> Value {
        let mut event = json!({ "name": name, "resourceType": self.resource_type });
        for (field, value) in [("namespace", &self.namespace), ("id", &self.id), ("selector", &self.selector)] {
            if !value.is_empty() {
                event[field] = json!(value);
            }
        }
        event
    }
}

/// For `croft-fuzz`: what is said of a subscription names it as the client did.
pub(super) fn told(message: &[u8]) -> Option<Value> {
    let wish: Wish = serde_json::from_slice(message).ok()?;
    let event = wish.event("resource.start");
    let again = Wish::deserialize(&event).unwrap_or_default();
    assert!(again.is_about(&wish), "{event}");
    Some(event)
}

struct Subscription {
    wish: Wish,
    collection: Arc<Collection>,
    changed: tokio::sync::watch::Receiver<u64>,
    cursor: Cursor,
    selection: Selection,
    /// Empty for all.
    namespaces: Vec<String>,
    dresser: Dresser,
}

struct Session {
    call: Call,
    socket: Socket,
    subscriptions: Vec<Subscription>,
}

enum Woken {
    Client(Option<Result<Message, tokio_tungstenite::tungstenite::Error>>),
    Changed,
    Tick,
    Stop,
}

impl Session {
    async fn run(mut self) {
        let root = if self.call.info.path.starts_with("/v1/harvester/") { "/v1/harvester" } else { "/v1" };
        let stop = self.call.ended();
        let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
        loop {
            let changes = self.subscriptions.iter_mut().map(|one| one.changed.changed().boxed());
            let changes: Vec<_> = changes.collect();
            let changed =
                async { if changes.is_empty() { pending::<()>().await } else { drop(select_all(changes).await) } };
            let woken = tokio::select! {
                message = self.socket.next() => Woken::Client(message),
                () = changed => Woken::Changed,
                _ = ping.tick() => Woken::Tick,
                () = stop.cancelled() => Woken::Stop,
            };
            let is_open = match woken {
                Woken::Client(Some(Ok(Message::Text(text)))) => self.wish(root, text.as_bytes()).await,
                Woken::Client(Some(Ok(Message::Binary(bytes)))) => self.wish(root, &bytes).await,
                Woken::Client(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => true,
                Woken::Client(Some(Ok(Message::Close(_)) | Err(_)) | None) | Woken::Stop => false,
                Woken::Changed => self.send_changes().await,
                Woken::Tick => self.tick().await,
            };
            if !is_open {
                // Whoever is gone hears no goodbye.
                let _ = self.socket.close(None).await;
                return;
            }
        }
    }

    /// Says whether the client is still there.
    async fn send(&mut self, event: &Value) -> bool {
        self.socket.send(Message::text(event.to_string())).await.is_ok()
    }

    async fn refuse(&mut self, wish: &Wish, why: &str) -> bool {
        let mut error = wish.event("resource.error");
        error["data"] = json!({ "error": why });
        self.send(&error).await && self.send(&wish.event("resource.stop")).await
    }

    async fn wish(&mut self, root: &str, message: &[u8]) -> bool {
        let wish: Wish = match serde_json::from_slice(message) {
            Ok(wish) => wish,
            Err(error) => return self.refuse(&Wish::default(), &format!("this cannot be read: {error}")).await,
        };
        let known = self.subscriptions.iter().position(|one| one.wish.is_about(&wish));
        match (wish.stop, known) {
            (true, None) | (false, Some(_)) => true,
            (true, Some(at)) => {
                self.subscriptions.swap_remove(at);
                self.send(&wish.event("resource.stop")).await
            }
            (false, None) if self.subscriptions.len() >= MAX_SUBSCRIPTIONS => {
                let why = format!("more than {MAX_SUBSCRIPTIONS} subscriptions on one connection");
                self.refuse(&wish, &why).await
            }
            (false, None) => match subscribe(&self.call, root, &wish).await {
                Ok(subscription) => {
                    self.subscriptions.push(subscription);
                    self.send(&wish.event("resource.start")).await && self.send_changes().await
                }
                Err(error) => self.refuse(&wish, error.message()).await,
            },
        }
    }

    /// A sign of life, and another look at what the caller may.
    async fn tick(&mut self) -> bool {
        let known = self.call.server.auth.authenticator.authenticate(&self.call.headers, None, None).await;
        if known.is_err() {
            // The session has ended, or the token is gone.
            return false;
        }
        let mut at = 0;
        while let Some(one) = self.subscriptions.get(at) {
            let (namespace, name) = one.wish.id.split_once('/').unwrap_or((&one.wish.namespace, &one.wish.id));
            match allowed(&self.call, &one.dresser.schema, namespace, name) {
                Ok(namespaces) => {
                    self.subscriptions[at].namespaces = namespaces;
                    at += 1;
                }
                Err(refused) => {
                    let gone = self.subscriptions.swap_remove(at);
                    if !self.refuse(&gone.wish, refused.message()).await {
                        return false;
                    }
                }
            }
        }
        self.send(&json!({ "name": "ping", "data": {} })).await
    }

    async fn send_changes(&mut self) -> bool {
        let mut at = 0;
        while at < self.subscriptions.len() {
            let one = &mut self.subscriptions[at];
            // Seen as far as the read below goes; what comes later wakes us again.
            one.changed.borrow_and_update();
            let mut changes = Vec::new();
            let read = one.collection.read(&mut one.cursor, CHUNK, &mut changes);
            let changes = match one.dresser.converted(changes).await {
                Ok(changes) => changes,
                Err(error) => {
                    let gone = self.subscriptions.swap_remove(at);
                    if !self.refuse(&gone.wish, error.message()).await {
                        return false;
                    }
                    continue;
                }
            };
            let one = &mut self.subscriptions[at];
            let events: Vec<Value> = changes.iter().filter_map(|change| one.event(change)).collect();
            for event in &events {
                if !self.send(event).await {
                    return false;
                }
            }
            match read {
                Ok(true) => at += 1,
                Ok(false) => {}
                Err(lost) => {
                    let gone = self.subscriptions.swap_remove(at);
                    let why = format!("too old resource version: events before {} are gone", lost.oldest);
                    if !self.refuse(&gone.wish, &why).await {
                        return false;
                    }
                }
            }
        }
        true
    }
}

async fn subscribe(call: &Call, root: &str, wish: &Wish) -> Result<Subscription, ApiError> {
    let catalog = call.server.catalog();
    let schema = Schema::find(&catalog, &wish.resource_type);
    let schema = schema.ok_or_else(|| super::reply::no_schema(&wish.resource_type))?;
    let (namespace, name) = match wish.id.split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None => (wish.namespace.as_str(), wish.id.as_str()),
    };
    let namespace = if schema.is_namespaced() { namespace } else { "" };
    let namespaces = allowed(call, &schema, namespace, name)?;
    let target = schema.target(namespace, name);
    let query = Query::of([("labelSelector", wish.selector.clone())]);
    let selection = Selection::parse(&target, &ListOptions::parse(&query, true)?)?;
    let collection = call.server.cache.collection(target.storage_key());
    let changed = collection.subscribe();
    let after = match wish.resource_version.as_str() {
        "" | "-1" | "0" => call.server.cache.fresh().await?,
        text => {
            let wanted: Revision = parse_revision(text)?;
            not_in_the_future(call, wanted).await?;
            wanted
        }
    };
    let cursor = collection.cursor_after(after);
    let cursor =
        cursor.map_err(|lost| ApiError::expired(format!("too old resource version: {after} ({})", lost.oldest)))?;
    let dresser = Dresser::new(call, root, &schema);
    Ok(Subscription { wish: wish.clone(), collection, changed, cursor, selection, namespaces, dresser })
}

/// The namespaces in which the caller may watch what was asked for; empty for all of it.
fn allowed(call: &Call, schema: &Schema, namespace: &str, name: &str) -> Result<Vec<String>, ApiError> {
    let wanted = schema.attributes("watch", namespace, name);
    let Err(refused) = call.server.auth.authorize(&call.user, &wanted) else {
        return Ok(if namespace.is_empty() { Vec::new() } else { vec![namespace.to_owned()] });
    };
    if !namespace.is_empty() || !schema.is_namespaced() {
        return Err(refused);
    }
    let mut own = own_namespaces(call);
    own.retain(|namespace| schema.allows(call, "watch", namespace, name));
    if own.is_empty() { Err(refused) } else { Ok(own) }
}

impl Subscription {
    /// What a change means to this client; nothing, if it is not about what it wants to see.
    fn event(&mut self, change: &Change) -> Option<Value> {
        let namespace = change.object.namespace();
        if !self.namespaces.is_empty() && !self.namespaces.iter().any(|own| own == namespace) {
            return None;
        }
        let was = change.previous.as_ref().is_some_and(|previous| self.selection.matches(previous));
        let is = !change.is_deletion && self.selection.matches(&change.object);
        let name = match (was, is) {
            (false, true) => "resource.create",
            (true, true) => "resource.change",
            (true, false) => "resource.remove",
            (false, false) => return None,
        };
        let mut data = Vec::new();
        self.dresser.write(&change.object, &mut data);
        let mut event = self.wish.event(name);
        event["revision"] = json!(change.revision.to_string());
        event["data"] = serde_json::from_slice(&data).unwrap_or_default();
        Some(event)
    }
}

//! A client that lists and watches for as long as the run lasts, and holds every word against the store's book.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;

use crate::client::Client;
use crate::disk::Disk;
use crate::network::ReplyBody;
use crate::reads::{self, Expected, Told, name_of};
use crate::sim::Sim;
use crate::users::{text, version};

pub(crate) struct Watcher {
    pub(crate) sim: Sim,
    pub(crate) disk: Arc<Disk>,
    pub(crate) client: Client,
    pub(crate) path: String,
    pub(crate) prefix: String,
    /// What it has been told up to now; none until it has a list.
    pub(crate) expected: Mutex<Option<Expected>>,
}

/// How a watch ended.
enum Ended {
    Resume,
    ListAgain,
}

impl Watcher {
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let listed = reads::check_list(&self.sim, &self.disk, &self.client, &self.path, &self.prefix, 0).await;
            let Some(revision) = listed else {
                self.sim.sleep(Duration::from_millis(300)).await;
                continue;
            };
            *self.expected.lock() = Some(Expected::new(&self.disk, &self.prefix, &self.path, revision));
            while let Ended::Resume = self.watch().await {
                self.sim.sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn watch(&self) -> Ended {
        let after = self.expected.lock().as_ref().map_or(0, |expected| expected.after);
        let mark = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{mark}watch=1&allowWatchBookmarks=true&resourceVersion={after}", self.path);
        let mut body = match self.client.watch(&path).await {
            Ok(body) => body,
            Err(410) => return Ended::ListAgain,
            Err(_) => return Ended::Resume,
        };
        let mut buffer = Vec::new();
        while let Some(line) = next_line(&mut body, &mut buffer).await {
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { return Ended::Resume };
            if event["type"] == "ERROR" {
                return if event["object"]["code"] == 410 { Ended::ListAgain } else { Ended::Resume };
            }
            self.told(&event);
        }
        Ended::Resume
    }

    fn told(&self, event: &Value) {
        let (sort, object) = (text(event, "/type"), &event["object"]);
        let revision = version(object);
        let mut expected = self.expected.lock();
        let Some(expected) = expected.as_mut() else { return };
        if sort == "BOOKMARK" {
            if let Some(missed) = expected.next(&self.disk, revision) {
                self.sim.problem("watch", format_args!("{}: a bookmark at {revision} before {missed:?}", self.path));
            }
            expected.after = expected.after.max(revision);
            return;
        }
        let told = Told { revision, sort, name: name_of(object) };
        if revision <= expected.after {
            self.sim.problem("watch", format_args!("{}: {told:?} again, after {}", self.path, expected.after));
            return;
        }
        let next = expected.next(&self.disk, self.disk.revision());
        if next.as_ref() != Some(&told) {
            self.sim.problem("watch", format_args!("{}: told {told:?}, expected {next:?}", self.path));
            expected.after = expected.after.max(revision);
        }
    }

    /// When all is quiet, everything has been told.
    pub(crate) fn check_end(&self) {
        let mut expected = self.expected.lock();
        let Some(expected) = expected.as_mut() else {
            return self.sim.problem("watch", format_args!("{} was never listed", self.path));
        };
        if let Some(missed) = expected.next(&self.disk, self.disk.revision()) {
            self.sim.problem("watch", format_args!("{}: was never told {missed:?}", self.path));
        }
    }
}

async fn next_line(body: &mut ReplyBody, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(end + 1);
            return Some(std::mem::replace(buffer, rest));
        }
        let frame = body.frame().await?.ok()?;
        buffer.extend_from_slice(frame.data_ref()?);
    }
}

//! First objects that cannot be had yet, and come later.
//!
//! Their namespace or their definition is being deleted, or somebody has taken what they take. They are left out, and tried again
//! until all of them are there: what goes is gone some time, and then they come back without another start.

use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, object};
use serde_json::Value;

use super::{NAMESPACES, Wanted, definitions, ensure, namespace};
use crate::admission;
use crate::cache::Object;
use crate::call::{Call, Target};
use crate::server::ApiServer;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A first object that is not there, or will not be for long.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) wanted: Wanted,
    pub(super) why: ApiError,
    /// Not so if it is there as yet, and may have been brought up to date.
    pub(super) is_refused: bool,
}

impl Late {
    fn tell(&self) {
        let (kind, id) = self.named();
        let (reason, why) = (self.why.reason(), self.why.message());
        tracing::warn!(kind, id, reason, why, "an object that every server has cannot be had now, and comes later");
    }

    fn named(&self) -> (String, String) {
        let object = &self.wanted.object;
        (object::gvk(object).kind, crate::call::id(object::namespace(object), object::name(object)))
    }

    fn is_about(&self, namespace: &str) -> bool {
        let object = &self.wanted.object;
        object::namespace(object) == namespace
            || object::gvk(object).kind == "Namespace" && object::name(object) == namespace
    }
}

/// Is it the object that is refused, and no failure of the server, which would meet the next one too?
pub(super) fn is_refusal(error: &ApiError) -> bool {
    matches!(error.code(), 403 | 404 | 405 | 409 | 422 | 429)
}

/// Why an object that is there will go: somebody deletes it, or what it rests on.
pub(super) fn is_going(server: &Arc<ApiServer>, target: &Target, stored: &Object, wanted: &Value) -> Option<ApiError> {
    let is_marked = memchr::memmem::find(&stored.bytes, b"\"deletionTimestamp\"").is_some();
    if is_marked && object::deletion_timestamp(&stored.json()).is_some() {
        return Some(target.conflict("it is being deleted"));
    }
    admission::guards(&Call::internal(server, target), target, wanted).err()
}

/// What is there and going may be refused a change besides.
pub(super) fn each_once(late: Vec<Late>) -> Vec<Late> {
    let mut once: Vec<Late> = Vec::with_capacity(late.len());
    for late in late {
        match once.iter_mut().find(|known| known.wanted.object == late.wanted.object) {
            Some(known) => known.is_refused |= late.is_refused,
            None => once.push(late),
        }
    }
    once
}

/// Sees to what is late, until all is there or the server stops.
pub(super) fn complete(server: &Arc<ApiServer>, late: Vec<Late>) {
    let going = definitions::going(server);
    for definition in &going {
        tracing::warn!(definition, "a definition that every server has is being deleted, and comes back later");
    }
    late.iter().for_each(Late::tell);
    if late.is_empty() && going.is_empty() {
        return;
    }
    let (owned, stop) = (Arc::clone(server), server.stopping());
    server.spawn(async move {
        tokio::select! {
            () = until_complete(&owned, late) => {}
            // What is written is written whole.
            () = stop.cancelled() => {}
        }
    });
}

async fn until_complete(server: &Arc<ApiServer>, mut late: Vec<Late>) {
    let mut wait = FIRST_WAIT;
    loop {
        tokio::time::sleep(wait).await;
        let before = late.len();
        match try_again(server, &late).await {
            Ok(left) => late = left,
            Err(error) => tracing::warn!(%error, "objects that every server has could not be looked at"),
        }
        if late.is_empty() && definitions::going(server).is_empty() {
            tracing::info!("all objects that every server has are there");
            return;
        }
        // Some may wait for others that have come just now.
        wait = if late.len() < before { FIRST_WAIT } else { LONGEST_WAIT.min(wait * 2) };
    }
}

async fn try_again(server: &Arc<ApiServer>, late: &[Late]) -> Result<Vec<Late>, ApiError> {
    let is_wanted = |name: &&str| late.iter().any(|late| late.is_about(name));
    let mut left = ensure(server, NAMESPACES.into_iter().filter(is_wanted).map(namespace).collect()).await?;
    definitions::install(server).await?;
    let mut wanted: Vec<Wanted> = definitions::memory(server).into_iter().collect();
    wanted.extend(late.iter().map(|late| late.wanted.clone()).filter(|wanted| !is_namespace(wanted)));
    left.extend(ensure(server, wanted).await?);
    Ok(left)
}

fn is_namespace(wanted: &Wanted) -> bool {
    object::gvk(&wanted.object).kind == "Namespace"
}

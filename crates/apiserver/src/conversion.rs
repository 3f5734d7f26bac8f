//! Kinds whose versions are converted by a webhook: `spec.conversion.strategy: Webhook` of their definition.
//!
//! Objects are stored in one version. Whoever asks for another gets what the webhook makes of the stored object, and what
//! is written in another version is converted before it is stored. What a webhook answered is kept ([`kept::Kept`]), so
//! that an object at a revision is converted once per version, however many lists and watches show it. Readers call
//! [`objects`] or [`object`] first and from then on have objects that are in the version of the request: the bytes can
//! be served as they are. A kind without such a webhook comes back at once, as it is.
//!
//! Words and checks follow kube-apiserver's `apiextensions-apiserver/pkg/apiserver/conversion`.

pub(crate) mod fuzzing;
mod kept;
mod review;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use croft_meta::{ApiError, Gvk, object};
use serde_json::Value;

pub(crate) use self::kept::Kept;
use self::kept::{Key, Planned};
use self::review::ReviewVersion;
use crate::cache::{Change, Object};
use crate::call::Target;
use crate::encoding;
use crate::metrics::conversions::Asked;
use crate::server::ApiServer;
use crate::webhooks::{Remote, RemoteError};

/// What a webhook is given to answer; upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What is sent to a webhook at once: up to so many objects, and no more once they are so large.
const BATCH_OBJECTS: usize = 200;
const BATCH_BYTES: usize = 1 << 20;

/// The webhook of one definition.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// Tells what was converted under one state of a definition from what was under another.
    serial: u64,
    definition: String,
    remote: Remote,
    review: Option<ReviewVersion>,
}

impl Conversion {
    /// `None` if the versions of the kind differ in name only.
    pub(crate) fn of(definition: &Value) -> Option<Arc<Self>> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let conversion = definition.pointer("/spec/conversion").filter(|found| found["strategy"] == "Webhook")?;
        let versions = conversion.pointer("/webhook/conversionReviewVersions").and_then(Value::as_array);
        Some(Arc::new(Self {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            definition: object::name(definition).to_owned(),
            remote: Remote::new(&conversion["webhook"]["clientConfig"]),
            review: versions.into_iter().flatten().filter_map(Value::as_str).find_map(ReviewVersion::parse),
        }))
    }

    /// Asks the webhook. All objects are of one version.
    async fn ask(&self, server: &ApiServer, originals: &[Value], to: &Gvk) -> Result<Vec<Value>, ApiError> {
        let from = originals.first().map(object::gvk).unwrap_or_default();
        let started = Instant::now();
        let result = self.exchange(server, originals, &from, to).await;
        let asked = Asked { definition: &self.definition, from: &from.version, to: &to.version };
        server.conversions.answered(&asked, started.elapsed(), result.is_ok());
        result.map_err(|why| {
            tracing::warn!(definition = self.definition, error = why, "a conversion webhook failed");
            ApiError::new(500, "", why)
        })
    }

    async fn exchange(
        &self,
        server: &ApiServer,
        originals: &[Value],
        from: &Gvk,
        to: &Gvk,
    ) -> Result<Vec<Value>, String> {
        let review = self.review.ok_or("no supported conversion review versions")?;
        let uid = uuid::Uuid::new_v4().to_string();
        let body = review::body(review, &uid, originals, to);
        let answer = self.remote.post(&server.cache, body.into(), TIMEOUT).await;
        let failed = |why: &dyn std::fmt::Display| format!("conversion webhook for {from} failed: {why}");
        let answer = answer.map_err(|error: RemoteError| failed(&error))?;
        let converted = review::read(review, &uid, &answer).map_err(|why| failed(&why))?;
        review::checked(originals, converted, from, to).map_err(|why| format!("conversion webhook for {from} {why}"))
    }
}

/// One object in the version that the target names.
pub(crate) async fn object(server: &ApiServer, target: &Target, stored: Arc<Object>) -> Result<Arc<Object>, ApiError> {
    if !is_needed(target, &stored) {
        return Ok(stored);
    }
    let mut converted = objects(server, target, vec![stored]).await?;
    converted.pop().ok_or_else(|| ApiError::internal("a conversion lost its object"))
}

/// Objects in the version that the target names, in the same order.
pub(crate) async fn objects(
    server: &ApiServer,
    target: &Target,
    stored: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, ApiError> {
    let Some(conversion) = &target.served.conversion else { return Ok(stored) };
    if !stored.iter().any(|object| is_needed(target, object)) {
        return Ok(stored);
    }
    let version = target.served.version().name.as_str();
    let (kept, mut all) = (&server.cache.converted, stored);
    let mut wanted: Vec<(usize, Key)> = Vec::new();
    for (index, object) in all.iter().enumerate().filter(|(_, object)| is_needed(target, object)) {
        wanted.push((index, Key::new(conversion.serial, version, object)));
    }
    while !wanted.is_empty() {
        let Planned { found, mine, turn, others } = kept.plan(&wanted);
        for (index, object) in found {
            all[index] = object;
        }
        let mut from = mine.as_slice();
        while let Some(batch) = next_batch(&all, from) {
            from = &from[batch.len()..];
            let originals: Vec<Arc<Object>> = batch.iter().map(|(index, _)| Arc::clone(&all[*index])).collect();
            match convert_batch(server, target, conversion, &originals).await {
                Ok(converted) => {
                    for ((index, key), object) in batch.iter().zip(converted) {
                        kept.keep(key, &object);
                        all[*index] = object;
                    }
                }
                Err(error) => {
                    turn.failed(&error);
                    return Err(error);
                }
            }
        }
        drop(turn);
        for other in others {
            other.settled().await?;
        }
        wanted.retain(|(index, _)| is_needed(target, &all[*index]));
    }
    Ok(all)
}

/// Objects of one version, not too many and not too large together; `None` if there are none left.
fn next_batch<'a>(all: &[Arc<Object>], rest: &'a [(usize, Key)]) -> Option<&'a [(usize, Key)]> {
    let first = encoding::api_version(&all[rest.first()?.0].bytes);
    let mut bytes = 0;
    let fits = |(index, _): &&(usize, Key)| {
        let object = &all[*index];
        let is_full = bytes >= BATCH_BYTES;
        bytes += object.size();
        !is_full && encoding::api_version(&object.bytes) == first
    };
    let count = rest.iter().take(BATCH_OBJECTS).take_while(fits).count();
    Some(&rest[..count.max(1)])
}

async fn convert_batch(
    server: &ApiServer,
    target: &Target,
    conversion: &Conversion,
    stored: &[Arc<Object>],
) -> Result<Vec<Arc<Object>>, ApiError> {
    let originals: Vec<Value> = stored.iter().map(|object| object.json()).collect();
    let converted = conversion.ask(server, &originals, &target.gvk()).await?;
    let made = converted.into_iter().zip(stored).map(|(mut value, stored)| {
        croft_schema::prune_resource(&target.served.version().schema, &mut value);
        Arc::new(Object::new(stored.id(), &encoding::to_stored(&value), stored.revision))
    });
    Ok(made.collect())
}

/// The changes of a watch, with their objects in the version that the target names.
pub(crate) async fn changes(
    server: &ApiServer,
    target: &Target,
    changes: Vec<Arc<Change>>,
) -> Result<Vec<Arc<Change>>, ApiError> {
    if target.served.conversion.is_none() {
        return Ok(changes);
    }
    // What a deleted object was last is what is converted: it often has been already.
    let states = |change: &Arc<Change>| {
        let new = Some(Arc::clone(&change.object)).filter(|_| !change.is_deletion);
        change.previous.clone().into_iter().chain(new).collect::<Vec<_>>()
    };
    let all = objects(server, target, changes.iter().flat_map(states).collect()).await?;
    let mut all = all.into_iter();
    let converted = changes.iter().map(|change| {
        let previous = change.previous.is_some().then(|| all.next()).flatten();
        let object = match &previous {
            Some(last) if change.is_deletion => Some(Arc::new(last.deleted(change.revision))),
            _ if change.is_deletion => None,
            _ => all.next(),
        };
        let object = object.unwrap_or_else(|| Arc::clone(&change.object));
        Arc::new(Change { revision: change.revision, object, previous, is_deletion: change.is_deletion })
    });
    Ok(converted.collect())
}

/// An object that is not stored, or not as it is, in another version of its kind.
pub(crate) async fn value(server: &ApiServer, target: &Target, object: Value, to: &Gvk) -> Result<Value, ApiError> {
    let mut object = object;
    if object::gvk(&object) == *to {
        return Ok(object);
    }
    let Some(conversion) = &target.served.conversion else {
        crate::write::convert(&mut object, target, to);
        return Ok(object);
    };
    let converted = conversion.ask(server, &[object], to).await?;
    let mut converted = converted.into_iter().next().unwrap_or_default();
    if let Some(version) = target.served.resource.version(&to.version) {
        croft_schema::prune_resource(&version.schema, &mut converted);
    }
    Ok(converted)
}

/// Must a webhook see the object before a request of this target may?
pub(crate) fn is_needed(target: &Target, stored: &Object) -> bool {
    target.served.conversion.is_some() && {
        let found = encoding::api_version(&stored.bytes);
        found.is_none_or(|found| {
            found.rsplit(|byte| *byte == b'/').next() != Some(target.served.version().name.as_bytes())
        })
    }
}

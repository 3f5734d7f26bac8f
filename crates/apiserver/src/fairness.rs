//! Priority and fairness: who is worked for next when there is more to do than can be done at once.
//!
//! As upstream's API Priority and Fairness, with its objects: a FlowSchema says which priority level a request belongs to and
//! what tells one flow of requests from another; a PriorityLevelConfiguration says how many requests of a level are worked on
//! at a time, and whether the others wait. Within a level the flows take turns, so that whoever asks most waits longest.
//!
//! - [`schema`]: which FlowSchema a request matches. [`level`]: what the levels' objects say.
//! - [`seats`]: who has a seat, who waits, who is next. Knows nothing of requests. [`sending`]: until when it is kept.
//!
//! Different from upstream: each flow has a queue of its own, instead of a hand of shared ones, so that no flow suffers for
//! another that was dealt the same queue; and levels borrow from each other at once, not every ten seconds.

mod level;
mod schema;
mod seats;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use croft_meta::ApiError;
use http::{HeaderName, HeaderValue};

use crate::answer::Answer;
use crate::cache::{Cache, Derived};
use crate::metrics::Flows;
use crate::request::RequestInfo;
use crate::user::UserInfo;

use level::Levels;
use schema::Schemas;
pub(crate) use seats::Seat;
use seats::{Refused, Seats};
pub(crate) use sending::until_sent;

pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// A request that has waited this long for a seat is told to come back, as upstream does after a quarter of its minute.
const PATIENCE: Duration = Duration::from_secs(15);
/// A list takes a seat more for so many objects, and at most so many seats.
const OBJECTS_A_SEAT: usize = 100;
const MOST_SEATS: usize = 10;

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// How many requests are worked on at a time unless it is said otherwise: enough for those that wait for a disk, few enough
/// for a processor to come round to each soon.
pub(crate) fn default_seats() -> usize {
    const A_PROCESSOR: usize = 16;
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) * A_PROCESSOR
}

#[derive(Debug)]
pub(crate) struct Fairness {
    schemas: Derived<Schemas, 2>,
    seats: Arc<Seats>,
    total: usize,
}

/// What a request was taken for.
#[derive(Clone, Debug)]
pub(crate) struct Classified {
    schema: Arc<schema::Schema>,
    flow: String,
}

impl Fairness {
    pub(crate) fn new(cache: &Cache, total: usize, metrics: Flows) -> Self {
        Self {
            schemas: Derived::of(cache, GROUP, ["flowschemas", "prioritylevelconfigurations"]),
            seats: Arc::new(Seats::new(metrics)),
            total,
        }
    }

    pub(crate) fn classify(&self, user: &UserInfo, info: &RequestInfo) -> Classified {
        let schema = self.schemas().find(user, info);
        let flow = schema.flow(user, info).to_owned();
        Classified { schema, flow }
    }

    /// Waits for a turn. The seat is given back when it is dropped.
    pub(crate) async fn seat(&self, of: &Classified, width: usize) -> Result<Seat, ApiError> {
        let (schema, level) = (&*of.schema.name, &*of.schema.level);
        let waiting = self.seats.take(level, schema, &of.flow, width);
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or(Err(Refused::TimeOut)).map_err(|why| {
            self.seats.refused(level, schema, why);
            ApiError::too_many_requests("Too many requests, please try again later.", 1)
        })
    }

    /// As of now. Seats are arranged as the levels say whenever those change.
    fn schemas(&self) -> Arc<Schemas> {
        self.schemas.get(|[schemas, levels], _| {
            let levels = Levels::of(levels.list("").iter().map(|object| object.json()));
            self.seats.arrange(levels.seats(self.total));
            Schemas::of(schemas.list("").iter().map(|object| object.json()), &levels)
        })
    }
}

impl Classified {
    /// Tells the client, as upstream does, what it was taken for.
    pub(crate) fn tell(&self, answer: &mut Answer) {
        for (name, uid) in [(SCHEMA_UID, &self.schema.uid), (LEVEL_UID, &self.schema.level_uid)] {
            if let Ok(value) = HeaderValue::from_str(uid) {
                answer.headers_mut().insert(name, value);
            }
        }
    }
}

/// How many seats a list of so many objects takes; all else takes one.
pub(crate) fn width(objects: usize) -> usize {
    objects.div_ceil(OBJECTS_A_SEAT).clamp(1, MOST_SEATS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_lists_are_wide() {
        for (objects, expected) in [(0, 1), (100, 1), (101, 2), (90_000, 10)] {
            assert_eq!(width(objects), expected, "{objects}");
        }
    }
}

//! For `croft-fuzz`: what is chosen of a list, and in which order; and what clients subscribe to.

use serde_json::Value;

use super::filter::{Filter, Sort};

/// Filters and sorts. The order is one: sorting panics where it is not.
pub(crate) fn query(filters: &[&str], sort: &str, objects: &mut [Value]) {
    if let Ok(filter) = Filter::parse(filters.iter().copied()) {
        let chosen = objects.iter().filter(|object| filter.matches(object)).count();
        assert!(!filter.is_everything() || chosen == objects.len());
    }
    if let Ok(sort) = Sort::parse(sort) {
        objects.sort_by(|a, b| sort.compare(&sort.key(a), &sort.key(b)));
    }
}

/// What a client says on its WebSocket.
pub(crate) fn wish(message: &[u8]) -> Option<Value> {
    super::subscribe::told(message)
}

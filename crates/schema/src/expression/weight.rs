//! How much a value is, which is known before it is looked at or written out.
//!
//! Values share their parts: forty nested bindings of `[a, a]` take a few hundred bytes, and are a million million items to
//! whoever goes through them. So nobody counts further than an expression could pay for, and nothing is nested more deeply
//! than a walk over it may be.

use std::ops::Deref;

use serde_json::Value;

use super::value::{List, Map, Val};

/// Values that are nested more deeply are refused: comparing them, writing them and dropping them takes stack.
pub(super) const MOST_NESTING: usize = 200;

/// What an expression has put together, and how deeply it is nested.
#[derive(Clone, Debug)]
pub(crate) struct Made<T> {
    parts: T,
    depth: usize,
}

impl<T> Made<T> {
    /// `depth` is that of the deepest part.
    pub(super) fn new(parts: T, depth: usize) -> Self {
        Self { parts, depth: depth + 1 }
    }
}

impl<T> Deref for Made<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.parts
    }
}

/// How deep the deepest of them is.
pub(super) fn deepest<'v, 'a: 'v>(values: impl Iterator<Item = &'v Val<'a>>) -> usize {
    values.map(Val::depth).max().unwrap_or_default()
}

impl Val<'_> {
    /// How much work it is to look at all of it: characters by ten, items by one. What is more than an expression may
    /// spend is not counted further.
    pub(super) fn size(&self) -> u64 {
        self.size_within(super::CALL_LIMIT)
    }

    /// Its size; anything above `most` if it is larger. Takes no more steps than that.
    fn size_within(&self, most: u64) -> u64 {
        match self {
            Self::Text(text) => length(text.len()),
            Self::Bytes(bytes) => length(bytes.len()),
            Self::List(List::Json(list)) => sum(list.iter(), most, json_size),
            Self::List(List::Made(list)) => sum(list.iter(), most, Val::size_within),
            Self::Map(Map::Json(map)) => sum(map.iter(), most, json_entry),
            Self::Map(Map::Made(map)) => {
                sum(map.iter(), most, |(key, value), most| value.size_within(most).saturating_add(tenth(key.len())))
            }
            Self::Struct(made) => sum(made.fields.values(), most, Val::size_within),
            Self::Optional(Some(value)) => value.size_within(most),
            _ => 1,
        }
    }

    /// The size of the smaller one, found without going through the larger one.
    pub(super) fn smaller(&self, other: &Self) -> u64 {
        let mut most = 64;
        loop {
            let smaller = self.size_within(most).min(other.size_within(most));
            if smaller <= most || most > super::CALL_LIMIT {
                return smaller;
            }
            most *= 4;
        }
    }

    /// How deeply it is nested. JSON is bounded where it is read.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::List(List::Made(list)) => list.depth,
            Self::Map(Map::Made(map)) => map.depth,
            Self::Struct(made) => made.fields.depth,
            Self::Optional(Some(value)) => value.depth() + 1,
            _ => 0,
        }
    }
}

/// The sizes of all parts, and one for what holds them.
fn sum<T>(parts: impl Iterator<Item = T>, most: u64, size: impl Fn(T, u64) -> u64) -> u64 {
    let mut all = 1_u64;
    for part in parts {
        if all > most {
            break;
        }
        all = all.saturating_add(size(part, most - all));
    }
    all
}

fn length(bytes: usize) -> u64 {
    tenth(bytes).saturating_add(1)
}

fn tenth(bytes: usize) -> u64 {
    u64::try_from(bytes / 10).unwrap_or(u64::MAX)
}

fn json_entry((key, value): (&String, &Value), most: u64) -> u64 {
    json_size(value, most).saturating_add(tenth(key.len()))
}

fn json_size(json: &Value, most: u64) -> u64 {
    match json {
        Value::String(text) => length(text.len()),
        Value::Array(list) => sum(list.iter(), most, json_size),
        Value::Object(map) => sum(map.iter(), most, json_entry),
        _ => 1,
    }
}

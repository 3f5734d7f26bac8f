//! Lists of a strategic merge patch: merging by key or by value, deletion, and order.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use serde_json::{Map, Value};

use super::{ELEMENT_ORDER, Field, PATCH, bad_type, merge_maps, unknown_patch_type, without_directives};
use crate::error::PatchError;
use crate::fieldpath::PathElement;
use crate::go_format;

/// `$deleteFromPrimitiveList`: the list without these values.
pub(super) fn delete(original: Vec<Value>, unwanted: &[Value]) -> Result<Vec<Value>, PatchError> {
    if !original.is_empty() || !unwanted.is_empty() {
        check_one_type(&original, unwanted)?;
    }
    let unwanted = places(unwanted, None);
    Ok(original.into_iter().filter(|item| !unwanted.contains_key(&id(item, None))).collect())
}

/// Merges a list of the patch into one of the document, by its declared strategy.
pub(super) fn merge(list: Field<'_>, original: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, PatchError> {
    if !list.merges() {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let of_maps = check_one_type(&original, &patch)?;
    if !of_maps {
        let merged = unique(&original, &patch);
        return arrange(merged, &patch, &original, None);
    }
    let Some(key) = list.merge_key() else {
        return Err(PatchError::Failed("cannot merge lists without merge key for struct".to_owned()));
    };
    let (original, patch) = run_directives(original, patch, key)?;
    let merged = merge_items(list, original.clone(), &patch, key)?;
    arrange(merged, &patch, &original, Some(key))
}

/// Merges a list whose order the patch gives. `None`: there is no such list anywhere.
pub(super) fn merge_in_order(
    list: Field<'_>,
    original: Option<Vec<Value>>,
    patch: Option<Vec<Value>>,
    order: &[Value],
) -> Result<Option<Vec<Value>>, PatchError> {
    let key = list.merge_key();
    check_order(patch.as_deref().unwrap_or_default(), order, key)?;
    let live = original.clone().unwrap_or_default();
    let changes = patch.clone().unwrap_or_default();
    let merged = match (original, patch) {
        (None, None) => return Ok(None),
        (Some(original), None) => original,
        (None, Some(patch)) => patch.into_iter().filter_map(without_directives).collect(),
        (Some(original), Some(patch)) => merge(list, original, patch)?,
    };
    check_one_type(&live, &changes)?;
    let live = match key {
        Some(key) if list.merges() => order_after_merge(live, &changes, key),
        _ => live,
    };
    arrange(merged, order, &live, key).map(Some)
}

/// The live list as upstream looks up its order once the lists are merged. The merge has reused its memory by then: items
/// that were deleted left, and as many new ones took their places. Removing one item and adding another is an everyday
/// `kubectl apply`, so where the new one lands is worth getting right.
fn order_after_merge(mut live: Vec<Value>, patch: &[Value], key: &str) -> Vec<Value> {
    let directive = |item: &Value| item.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    let len = live.len();
    let is_deletion = |item: &&Value| directive(item).as_deref() == Some("delete");
    let deleted: BTreeSet<Id> = patch.iter().filter(is_deletion).map(|item| id(item, Some(key))).collect();
    live.retain(|item| !deleted.contains(&id(item, Some(key))));
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        return live;
    }
    let mut known: BTreeSet<Id> = live.iter().map(|item| id(item, Some(key))).collect();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        if live.len() == len {
            break;
        }
        if known.insert(id(item, Some(key))) {
            live.push(item.clone());
        }
    }
    live
}

/// What an item is told apart by: the value of its key, or itself. An element because those have an order.
type Id = PathElement;

fn id(item: &Value, key: Option<&str>) -> Id {
    PathElement::Value(key.map_or_else(|| item.clone(), |key| item.get(key).cloned().unwrap_or(Value::Null)))
}

/// The first place of each item.
fn places(list: &[Value], key: Option<&str>) -> BTreeMap<Id, usize> {
    let mut places = BTreeMap::new();
    for (at, item) in list.iter().enumerate() {
        places.entry(id(item, key)).or_insert(at);
    }
    places
}

/// The relative order of the patch's items must be that of the order list, which must name them all.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut items = Vec::with_capacity(patch.len());
    for item in patch {
        if key.is_none() {
            items.push(item);
            continue;
        }
        let map = as_map(item)?;
        if map.get(PATCH).and_then(Value::as_str) != Some("delete") {
            items.push(item);
        }
    }
    let (mut item, mut place) = (0, 0);
    while item < items.len() && place < order.len() {
        if items[item].get(PATCH).is_some() {
            item += 1;
            continue;
        }
        let same = match key {
            None => items[item] == &order[place],
            Some(key) => key_of(items[item], key)? == key_of(&order[place], key)?,
        };
        if same {
            item += 1;
        }
        place += 1;
    }
    if item < items.len() && place >= order.len() {
        let (patch, order) = (Value::Array(patch.to_vec()), Value::Array(order.to_vec()));
        return Err(PatchError::Failed(format!(
            "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
            go_format::plain(&patch),
            go_format::plain(&order)
        )));
    }
    Ok(())
}

fn as_map(item: &Value) -> Result<&Map<String, Value>, PatchError> {
    item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))
}

fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, PatchError> {
    as_map(item)?.get(key).ok_or_else(|| no_merge_key(item, key))
}

fn no_merge_key(item: &Value, key: &str) -> PatchError {
    PatchError::Failed(format!("map: {} does not contain declared merge key: {key}", go_format::plain(item)))
}

/// All items must be of one type; says whether that is objects.
fn check_one_type(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else {
        return Err(PatchError::Failed("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(PatchError::Rejected("lists of lists are not supported".to_owned()));
    }
    let same = |item: &Value| {
        discriminant(item) == discriminant(first) && go_format::type_name(item) == go_format::type_name(first)
    };
    if items.all(same) {
        return Ok(first.is_object());
    }
    let lists = Value::Array(vec![Value::Array(original.to_vec()), Value::Array(patch.to_vec())]);
    Err(PatchError::Failed(format!("list element types are not identical: {}", go_format::plain(&lists))))
}

/// The values of both lists, each once.
fn unique(original: &[Value], patch: &[Value]) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    original.iter().chain(patch).filter(|item| seen.insert(id(item, None))).cloned().collect()
}

/// Runs the `$patch` items of a list; gives the original and the patch without them.
fn run_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut unwanted = BTreeSet::new();
    let mut replace = false;
    for item in patch {
        let map = as_map(&item)?;
        let Some(directive) = map.get(PATCH) else {
            rest.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                key_of(&item, key)?;
                unwanted.insert(id(&item, Some(key)));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(PatchError::Failed("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(unknown_patch_type(directive, map)),
        }
    }
    original.retain(|item| item.get(key).is_none() || !unwanted.contains(&id(item, Some(key))));
    Ok(if replace { (rest, Vec::new()) } else { (original, rest) })
}

fn merge_items(
    list: Field<'_>,
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<Vec<Value>, PatchError> {
    let mut known = places(&original, Some(key));
    for item in patch {
        key_of(item, key)?;
        let at = *known.entry(id(item, Some(key))).or_insert(original.len());
        match (original.get_mut(at), item) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                *old = merge_maps(list.items(), std::mem::take(old), new.clone())?;
            }
            _ => original.push(item.clone()),
        }
    }
    Ok(original)
}

/// Orders a merged list: the items of `order` as there, the others between them as in the live list.
fn arrange(merged: Vec<Value>, order: &[Value], live: &[Value], key: Option<&str>) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = key {
        for item in merged.iter().chain(order).chain(live) {
            key_of(item, key)?;
        }
    }
    let (order, live) = (places(order, key), places(live, key));
    let place = |places: &BTreeMap<Id, usize>, item: &Value| places.get(&id(item, key)).copied();
    let (mut ordered, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(&order, item).is_some());
    ordered.sort_by_cached_key(|item| place(&order, item));
    others.sort_by_cached_key(|item| place(&live, item).unwrap_or(usize::MAX));

    // Each of the others goes before the first ordered item that it was before in the live list.
    let mut out = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in ordered {
        let at = place(&live, &item);
        while let Some(other) = others.next_if(|other| matches!((place(&live, other), at), (Some(o), Some(i)) if o < i))
        {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others);
    Ok(out)
}

//! GET of one object.

use std::sync::Arc;

use croft_meta::ApiError;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::cache::Object;
use crate::call::{Call, Target};
use crate::clock;
use crate::conversion;
use crate::encoding::Head;
use crate::negotiate::{Output, Shape};
use crate::options::parse_revision;
use crate::sealing;
use crate::table;
use crate::write::{in_version, is_served_as_stored, storage_gvk};

/// The current object. With `resourceVersion=0` whatever the cache has; with a number not older than that.
pub(crate) async fn find(call: &Call, target: &Target) -> Result<Arc<Object>, ApiError> {
    match call.query.get("resourceVersion").unwrap_or_default() {
        "0" => {}
        "" => drop(call.server.cache.fresh().await?),
        text => {
            let wanted = parse_revision(text)?;
            super::list::not_in_the_future(call, wanted).await?;
        }
    }
    let collection = call.server.cache.collection(target.storage_key());
    let found = collection.get(&target.id()).ok_or_else(|| match collection.unreadable(&target.id()) {
        Some(lost) => sealing::cannot_be_read(target, &lost),
        None => target.not_found(),
    })?;
    conversion::object(&call.server, target, found).await
}

pub(crate) async fn get(call: &Call, target: &Target, output: Output) -> Result<Answer, ApiError> {
    let found = find(call, target).await?;
    if output == Output::JSON && is_served_as_stored(target) {
        let head =
            Head::new(&storage_gvk(target).api_version(), Some(&target.gvk().api_version()), target.served.kind());
        let body = if head.is_on(&found.bytes) {
            found.bytes.clone()
        } else {
            let (first, rest) = head.pieces(&found.bytes);
            [first, rest].concat().into()
        };
        return Ok(answer::large(&call.headers, output.content_type(), body).await);
    }
    object(call, target, output, 200, in_version(&found, target))
}

/// An answer that is one object, in the form that the client asked for.
pub(crate) fn object(
    call: &Call,
    target: &Target,
    output: Output,
    code: u16,
    object: Value,
) -> Result<Answer, ApiError> {
    let value = match output.shape {
        Shape::Whole => object,
        Shape::Partial(version) => table::partial_metadata(&object, version),
        Shape::Table(version) => {
            let metadata = json!({ "resourceVersion": croft_meta::object::resource_version(&object) });
            let printer = table::Printer::new(&target.served);
            let row = printer.row(&object, include(call)?, version, clock::now_seconds());
            table::document(version, metadata, Some(printer.columns()), vec![row])
        }
    };
    Ok(answer::render(output, code, &value))
}

/// How much of each object the client wants in its table.
pub(crate) fn include(call: &Call) -> Result<table::Include, ApiError> {
    table::Include::parse(call.query.get("includeObject").unwrap_or_default())
}

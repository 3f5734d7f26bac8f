//! LIST, with pages, revisions and selectors.

mod converted;
mod token;

use std::sync::Arc;
use std::time::Duration;

use croft_meta::status::{Cause, Details};
use croft_meta::{ApiError, Revision};
use croft_store::Range;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::answer_room::Reserved;
use crate::cache::{self, Newer, Object, store_error};
use crate::call::{Call, Target};
use crate::clock;
use crate::list_body::ListBody;
use crate::negotiate::{Output, Shape};
use crate::options::ListOptions;
use crate::sealing;
use crate::table;
use crate::verbs::get;
use crate::verbs::selection::Selection;
use crate::write::{in_version, is_served_as_stored};
use token::Token;

/// How long a list waits for a revision that is not there yet, as upstream.
const FUTURE_TIMEOUT: Duration = Duration::from_secs(3);

/// After so many bytes of objects, whoever makes a long answer lets others come to their turn: a fraction of a millisecond.
const BREATH: usize = 64 << 10;

/// Objects of one list answer.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) revision: Revision,
    next: String,
    remaining: Option<usize>,
    /// For objects that nobody else has in memory.
    pub(crate) room: Option<Reserved>,
}

/// A token, read and written again. For `croft-fuzz`.
pub(crate) fn rewritten_token(text: &str) -> Option<String> {
    Token::decode(text).ok().map(|token| token.encode())
}

pub(crate) async fn list(call: &Call, target: &Target, output: Output) -> Result<Answer, ApiError> {
    let options = ListOptions::parse(&call.query, false)?;
    let selection = Selection::parse(target, &options)?;
    let mut page = page(call, target, &options, &selection).await?;
    sealing::warn_of_unreadable(call, target);
    let mut room = page.room.take();
    if !call.is_internal && !is_made_as_it_is_read(target, output) {
        let bytes = page.objects.iter().map(|object| object.bytes.len()).sum();
        room = call.server.answer_room.reserve(&call.user.name, room, bytes).await?;
    }
    let answer = answer(call, target, output, page).await?;
    match room {
        Some(room) => room.keep(answer).await,
        None => Ok(answer),
    }
}

/// Finds the objects, as of the revision that the options ask for, in the version that the target names.
pub(crate) async fn page(
    call: &Call,
    target: &Target,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Page, ApiError> {
    if target.served.conversion.is_some() {
        return converted::page(call, target, options, selection).await;
    }
    stored_page(call, target, options, selection).await
}

/// The same, in the versions that they are stored in.
async fn stored_page(
    call: &Call,
    target: &Target,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Page, ApiError> {
    if !options.continue_token.is_empty() {
        if !options.resource_version.is_empty() && options.resource_version != "0" {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let token = Token::decode(&options.continue_token)?;
        let Some(revision) = token.moment() else {
            call.server.cache.fresh().await?;
            return Ok(newest_page(call, target, options.limit, selection, &token));
        };
        call.server.cache.reached(revision).await?;
        return page_of(call, target, options, selection, revision, &token).await;
    }
    let start = Token::start();
    match options.list_revision()? {
        None => drop(call.server.cache.fresh().await?),
        // "Any state will do": the whole of it, as upstream, whatever the limit.
        Some(Revision::ZERO) => return Ok(newest_page(call, target, 0, selection, &start)),
        Some(wanted) => {
            not_in_the_future(call, wanted).await?;
            if options.exact || (options.limit > 0 && !options.not_older_than) {
                return page_of(call, target, options, selection, wanted, &start).await;
            }
        }
    }
    Ok(newest_page(call, target, options.limit, selection, &start))
}

/// A page of that moment: of the cache, if it is still as it was then.
async fn page_of(
    call: &Call,
    target: &Target,
    options: &ListOptions,
    selection: &Selection,
    revision: Revision,
    token: &Token,
) -> Result<Page, ApiError> {
    // What is forgotten is refused even where nothing has changed since: a client cannot tell, and need not.
    let is_forgotten = token.moment().is_some() && call.server.store.compacted() > revision;
    if !is_forgotten && let Ok(page) = page_from_cache(call, target, options.limit, selection, token, Some(revision)) {
        return Ok(page);
    }
    page_from_store(call, target, options, selection, revision, token).await
}

fn newest_page(call: &Call, target: &Target, limit: usize, selection: &Selection, token: &Token) -> Page {
    // Nothing is newer than what may be of any moment.
    page_from_cache(call, target, limit, selection, token, None).unwrap_or_default()
}

impl Page {
    /// `metadata` of the list.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if !self.next.is_empty() {
            metadata["continue"] = json!(self.next);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

/// A page of a moment, or of the newest. Whether it is still that moment is looked at under the same lock as the objects.
fn page_from_cache(
    call: &Call,
    target: &Target,
    limit: usize,
    selection: &Selection,
    token: &Token,
    of: Option<Revision>,
) -> Result<Page, Newer> {
    let cache = &call.server.cache;
    let collection = cache.collection(target.storage_key());
    let mut page = Page { revision: of.unwrap_or_else(|| cache.applied()), ..Page::default() };
    if let Some(name) = selection.single_name()
        && (!target.namespace.is_empty() || !target.served.resource.is_namespaced())
    {
        // A list of one name is a lookup.
        let found = collection.get_of(&crate::call::id(&target.namespace, name), of)?;
        page.objects.extend(found.filter(|o| selection.matches(o)));
        return Ok(page);
    }
    let after = Some(token.start.as_str()).filter(|s| !s.is_empty());
    let everything = selection.is_everything();
    let mut more = false;
    let changed_at = collection.scan(&target.namespace, after, of, |object| {
        if !everything && !selection.matches(object) {
            return true;
        }
        if limit > 0 && page.objects.len() == limit {
            more = true;
            return false;
        }
        page.objects.push(Arc::clone(object));
        true
    })?;
    page.revision = of.unwrap_or_else(|| page.revision.max(changed_at));
    if more {
        let total = everything.then(|| token.total.unwrap_or_else(|| collection.count(&target.namespace)));
        page.continue_after(token.served + page.objects.len(), total);
    }
    Ok(page)
}

impl Page {
    fn continue_after(&mut self, served: usize, total: Option<usize>) {
        self.remaining = total.map(|total| total.saturating_sub(served));
        if let Some(last) = self.objects.last() {
            self.next = Token::after(last.id(), self.revision, served, total).encode();
        }
    }
}

/// A page of the past, which only the store remembers.
async fn page_from_store(
    call: &Call,
    target: &Target,
    options: &ListOptions,
    selection: &Selection,
    revision: Revision,
    token: &Token,
) -> Result<Page, ApiError> {
    let root = format!("{}{}/", cache::ROOT, target.storage_key());
    let prefix = if target.namespace.is_empty() { root.clone() } else { format!("{root}{}/", target.namespace) };
    let mut after = if token.start.is_empty() { String::new() } else { format!("{root}{}", token.start) };
    let mut page = Page { revision, ..Page::default() };
    let mut bytes = 0;
    loop {
        let limit = if options.limit == 0 { 2_000 } else { options.limit + 1 };
        let range = Range { prefix: prefix.clone(), after: after.clone(), limit, at: Some(revision) };
        let found = match call.server.store.range(range).await {
            Err(croft_store::Error::Compacted { .. }) => return Err(expired(options)),
            other => other.map_err(store_error)?,
        };
        if !call.is_internal {
            bytes += found.records.iter().map(|record| record.value.len()).sum::<usize>();
            page.room = call.server.answer_room.reserve_copies(&call.user.name, page.room, bytes).await?;
        }
        for record in found.records.iter().filter(|record| croft_store::sealed::unreadable(&record.value).is_none()) {
            let id = record.key.strip_prefix(&root).unwrap_or_default();
            let object = Arc::new(Object::new(id, &record.value, record.revision));
            if !selection.matches(&object) {
                continue;
            }
            if options.limit > 0 && page.objects.len() == options.limit {
                page.continue_after(token.served + page.objects.len(), token.total);
                return Ok(page);
            }
            page.objects.push(object);
        }
        match found.records.last() {
            Some(last) if found.more => after.clone_from(&last.key),
            _ => return Ok(page),
        }
    }
}

/// What was asked for is forgotten. A list that was cut short can still go on, with what is there now.
fn expired(options: &ListOptions) -> ApiError {
    if options.continue_token.is_empty() {
        return ApiError::expired("The resourceVersion for the provided list is too old.");
    }
    let token = Token::decode(&options.continue_token).unwrap_or_else(|_| Token::start());
    let token = token.of_now();
    ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
    .with_continue(token.encode())
}

/// Waits a little for a revision that is not there yet.
pub(crate) async fn not_in_the_future(call: &Call, wanted: Revision) -> Result<(), ApiError> {
    let cache = &call.server.cache;
    if cache.applied() >= wanted {
        return Ok(());
    }
    if cache.fresh().await? >= wanted {
        return Ok(());
    }
    let mut applied = cache.subscribe();
    if tokio::time::timeout(FUTURE_TIMEOUT, applied.wait_for(|seen| *seen >= wanted)).await.is_ok() {
        return Ok(());
    }
    Err(too_large(wanted, cache.applied()))
}

pub(crate) fn too_large(wanted: Revision, current: Revision) -> ApiError {
    ApiError::timeout(format!("Too large resource version: {wanted}, current: {current}"), 1).with_details(Details {
        causes: vec![Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            ..Cause::default()
        }],
        retry_after_seconds: 1,
        ..Details::default()
    })
}

/// The stored bytes, put together.
fn is_made_as_it_is_read(target: &Target, output: Output) -> bool {
    output == Output::JSON && is_served_as_stored(target)
}

/// Writes the list in the form that the client asked for.
async fn answer(call: &Call, target: &Target, output: Output, page: Page) -> Result<Answer, ApiError> {
    let mut metadata = page.metadata();
    if target.served.resource.is_custom && page.next.is_empty() {
        // Lists of custom resources always say where to go on, even if nowhere.
        metadata["continue"] = json!("");
    }
    if is_made_as_it_is_read(target, output) {
        let gzip = answer::accepts_gzip(&call.headers);
        return Ok(ListBody::new(target, &metadata, page.objects).into_answer(gzip));
    }
    let shape = shape(call, target, output)?;
    let mut items = Vec::with_capacity(page.objects.len());
    let mut bytes = 0;
    for object in &page.objects {
        bytes += object.bytes.len();
        if bytes > BREATH {
            bytes = 0;
            tokio::task::yield_now().await;
        }
        items.push(shape(in_version(object, target)));
    }
    Ok(put_together(target, output, metadata, items))
}

/// Any list of objects, in the form that the client asked for.
pub(crate) fn render(
    call: &Call,
    target: &Target,
    output: Output,
    metadata: Value,
    objects: Vec<Value>,
) -> Result<Answer, ApiError> {
    let items = objects.into_iter().map(shape(call, target, output)?).collect();
    Ok(put_together(target, output, metadata, items))
}

/// What becomes of each object in the form that the client asked for.
fn shape(call: &Call, target: &Target, output: Output) -> Result<impl Fn(Value) -> Value + Send + use<>, ApiError> {
    // The list names the type once, for all.
    let is_bare = !target.served.resource.is_custom;
    let (include, now) = (get::include(call)?, clock::now_seconds());
    let printer = table::Printer::new(&target.served);
    Ok(move |mut object: Value| match output.shape {
        Shape::Whole => {
            if let Some(object) = object.as_object_mut().filter(|_| is_bare) {
                object.remove("apiVersion");
                object.remove("kind");
            }
            object
        }
        Shape::Partial(version) => table::partial_metadata(&object, version),
        Shape::Table(version) => printer.row(&object, include, version, now),
    })
}

fn put_together(target: &Target, output: Output, metadata: Value, items: Vec<Value>) -> Answer {
    let value = match output.shape {
        Shape::Whole => whole(target, &metadata, &items),
        Shape::Partial(version) => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
            "items": items,
        }),
        Shape::Table(version) => {
            table::document(version, metadata, Some(table::Printer::new(&target.served).columns()), items)
        }
    };
    answer::render(output, 200, &value)
}

/// A list as one value.
pub(crate) fn whole(target: &Target, metadata: &Value, items: &[Value]) -> Value {
    json!({
        "kind": target.served.resource.names.list_kind,
        "apiVersion": target.gvk().api_version(),
        "metadata": metadata,
        "items": items,
    })
}

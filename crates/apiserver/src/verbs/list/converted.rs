//! Lists of kinds that a webhook converts: selectors look at what it made of the objects, as upstream's do.

use super::{ListOptions, Page, Selection, Token, expired, stored_page};
use crate::call::{Call, Target};
use crate::conversion;
use croft_meta::ApiError;

/// Of objects that are converted to see whether they are selected.
const CHUNK: usize = 500;

pub(super) async fn page(
    call: &Call,
    target: &Target,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Page, ApiError> {
    if selection.is_about_names() {
        let mut page = stored_page(call, target, options, selection).await?;
        page.objects = conversion::objects(&call.server, target, page.objects).await?;
        return Ok(page);
    }
    let whole = Selection::everything(target);
    let mut ask = ListOptions { limit: CHUNK, label_selector: String::new(), ..options.clone() };
    ask.field_selector.clear();
    // "Any state will do" is answered whole, whatever the limit.
    let limit = if options.resource_version == "0" { 0 } else { options.limit };
    let served = Token::decode(&options.continue_token).map_or(0, |token| token.served);
    let mut chosen: Option<Page> = None;
    loop {
        let chunk = match stored_page(call, target, &ask, &whole).await {
            // The client goes on from where it was, not from where we were.
            Err(error) if error.code() == 410 => return Err(expired(options)),
            other => other?,
        };
        let page = chosen.get_or_insert_with(|| Page { revision: chunk.revision, ..Page::default() });
        let objects = conversion::objects(&call.server, target, chunk.objects).await?;
        for object in objects.into_iter().filter(|object| selection.matches(object)) {
            if limit > 0 && page.objects.len() == limit {
                page.continue_after(served + limit, None);
                return Ok(chosen.unwrap_or_default());
            }
            page.objects.push(object);
        }
        if chunk.next.is_empty() {
            return Ok(chosen.unwrap_or_default());
        }
        // The rest of the same moment.
        ask.continue_token = chunk.next;
        (ask.resource_version, ask.exact, ask.not_older_than) = (String::new(), false, false);
    }
}

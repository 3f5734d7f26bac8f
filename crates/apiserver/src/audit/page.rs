//! `GET /croft/v1/audit`: what was written down, the newest first.

use std::str::FromStr;

use croft_meta::ApiError;

use super::filter::{Filter, bad};
use super::reader::{self, Cursor, Page};
use crate::answer::{self, Answer};
use crate::call::Call;

pub(crate) const PATH: &str = "/croft/v1/audit";
const LIMIT: usize = 100;
const MOST: usize = 1_000;

pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let path = call.server.audit.readable()?.to_owned();
    let filter = Filter::parse(&call.query)?;
    let limit = match call.query.get("limit").filter(|text| !text.is_empty()) {
        None => LIMIT,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
            limit.ok_or_else(|| bad("limit", text, "a number from 1 to 1000"))?
        }
    };
    let (before, after) = (cursor(call, "before")?, cursor(call, "after")?);
    if before.is_some() && after.is_some() {
        return Err(ApiError::bad_request("before and after cannot be asked for together"));
    }
    // Whoever has done something finds it here.
    call.server.audit.flush().await;
    let reading = tokio::task::spawn_blocking(move || match after {
        Some(after) => reader::newer(&path, &after, limit, |line| filter.judge(line)),
        None => reader::older(&path, before.as_ref(), limit, |line| filter.judge(line)),
    });
    let page = reading.await.map_err(ApiError::internal)?;
    let page = page.map_err(|error| ApiError::internal(format!("the audit log cannot be read: {error}")))?;
    Ok(answer::large(&call.headers, "application/json", rendered(page).into()).await)
}

fn cursor(call: &Call, key: &str) -> Result<Option<Cursor>, ApiError> {
    let Some(text) = call.query.get(key).filter(|text| !text.is_empty()) else { return Ok(None) };
    Cursor::from_str(text).map(Some).map_err(|()| bad(key, text, "a cursor that an answer had"))
}

/// The lines are JSON, or they would not have been taken.
fn rendered(page: Page) -> Vec<u8> {
    let mut body = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    body.extend(page.lines.join(&b','));
    body.push(b']');
    for (key, cursor) in [("before", page.before), ("after", page.after)] {
        if let Some(cursor) = cursor {
            body.extend(format!(",\"{key}\":\"{cursor}\"").into_bytes());
        }
    }
    body.extend(b"}\n");
    body
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_page_is_a_list_with_its_cursors() {
        let before = "0123456789abcdef-7".parse().ok();
        let page = Page { lines: vec![b"{\"a\":1}".to_vec(), b"{\"a\":0}".to_vec()], before, after: None };
        let list: Value = serde_json::from_slice(&rendered(page)).unwrap();
        let expected = json!({
            "kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": [{"a": 1}, {"a": 0}],
            "before": "0123456789abcdef-7",
        });
        assert_eq!(list, expected);
        let empty: Value = serde_json::from_slice(&rendered(Page::default())).unwrap();
        assert_eq!(empty["items"], json!([]));
    }
}

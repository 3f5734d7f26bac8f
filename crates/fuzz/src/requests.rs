//! What a request says besides its body.

use croft_apiserver::fuzzing as server;
use croft_meta::json;
use serde_json::{Value, json};

use crate::{split, text};

/// A path means the same with and without a slash at its end; what it names comes from it.
pub(crate) fn request_path(data: &[u8]) {
    let [method, path, query] = split(data);
    let (Some(method), Some(path), Some(query)) = (text(method), text(path), text(query)) else { return };
    let info = server::request(method, path, query);
    assert_eq!(server::request(method, &format!("{path}/"), query), info, "{path:?}");
    if let Some([verb, ..]) = info {
        assert!(path.contains("api") || path.contains('%'), "{path:?}");
        assert!(!verb.is_empty() || !matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE"));
    }
}

pub(crate) fn query_options(data: &[u8]) {
    let [query, body] = split(data);
    let Some(query) = text(query) else { return };
    server::query_options(query, json::parse(body).ok());
}

/// A token that is good is written so that it reads as the same.
pub(crate) fn continue_token(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Some(written) = server::continue_token(text) else { return };
    assert_eq!(server::continue_token(&written).as_ref(), Some(&written), "{text:?}");
}

pub(crate) fn accept(data: &[u8]) {
    let [first, second] = split::<2>(data);
    server::accept(&[first]);
    server::accept(&[first, second]);
}

/// A column shows no more than what there is.
pub(crate) fn jsonpath(data: &[u8]) {
    let [path, value] = split(data);
    let Some(path) = text(path) else { return };
    let value = json::parse(value).unwrap_or_else(|_| json!({"a": {"b": [{"c": 1}, {"c": "x"}]}, "d": [1, 2.5, null]}));
    if let Some(shown) = server::printer_column(path, &value) {
        // Some characters are escaped to six; numbers may be written out; the path may hold a constant.
        assert!(shown.len() <= 6 * (value.to_string().len() + path.len()) + 400, "{path:?}");
    }
}

pub(crate) fn rest_query(data: &[u8]) {
    let [filters, sort, list] = split(data);
    let (Some(filters), Some(sort)) = (text(filters), text(sort)) else { return };
    let filters: Vec<&str> = filters.split('&').collect();
    let objects = json::parse(list).ok().and_then(|list| list.as_array().cloned());
    let fallback = || vec![json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}, "n": [1, {"x": 2}]})];
    server::rest_query(&filters, sort, &mut objects.unwrap_or_else(fallback));
}

/// The filter of the audit log's page, a line of the log, and the file of a policy.
pub(crate) fn audit(data: &[u8]) {
    let [query, line, policy] = split(data);
    let Some(query) = text(query) else { return };
    server::audit(query, line, text(policy).unwrap_or_default());
}

/// What is said of a subscription says which it is.
pub(crate) fn subscription(data: &[u8]) {
    let Some(event) = server::subscription(data) else { return };
    assert!(event["name"].is_string() && event["resourceType"].is_string(), "{event}");
}

/// A webhook's patch, applied to an object, gives an object that can be written, or an error.
pub(crate) fn webhook_answer(data: &[u8]) {
    let Some(patch) = server::webhook_answer(data) else { return };
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}});
    if let Ok(patched) = croft_apply::json_patch::apply(&object, &patch) {
        let text = patched.to_string();
        assert_eq!(json::parse(text.as_bytes()).as_ref(), Ok::<&Value, &String>(&patched));
    }
}

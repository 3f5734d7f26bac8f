//! What a request asks for: the path and method parsed as upstream's `RequestInfo`, and the query.

use std::borrow::Cow;

use croft_meta::selector::FieldSelector;
use http::Method;

use crate::kubevirt;

/// A resource request names a collection or object; anything else is a plain path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub(crate) is_resource: bool,
    pub(crate) path: String,
    /// The API verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`),
    /// or the lower-case method for plain paths.
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) name: String,
    /// The name is not in the path: a field selector asks for it.
    pub(crate) is_name_selected: bool,
    /// What follows the subresource (`/proxy/...`).
    pub(crate) rest: String,
}

impl RequestInfo {
    /// Follows apiserver's `RequestInfoFactory.NewRequestInfo`.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let mut info = Self { path: path.to_owned(), verb: plain_verb(method), ..Self::default() };
        let decoded: Vec<String> = path.trim_matches('/').split('/').map(|s| percent_decode(s).into_owned()).collect();
        let mut parts: &[String] = &decoded;
        match parts {
            [api, version, rest @ ..] if api == "api" && !rest.is_empty() => {
                info.version.clone_from(version);
                parts = rest;
            }
            [apis, group, version, rest @ ..] if apis == "apis" && !rest.is_empty() => {
                info.group.clone_from(group);
                info.version.clone_from(version);
                parts = rest;
            }
            _ => return info,
        }
        info.is_resource = true;
        info.verb = resource_verb(method);
        // `/api/v1/watch/...` is the old way to say `?watch=true`.
        let is_old_watch = parts.first().is_some_and(|first| first == "watch") && parts.len() > 1;
        if is_old_watch {
            parts = &parts[1..];
        }
        if let [first, namespace, rest @ ..] = parts
            && first == "namespaces"
        {
            info.namespace.clone_from(namespace);
            // `namespaces/<name>`, `/status` and `/finalize` are about the namespace itself.
            let itself = matches!(rest, []) || matches!(rest, [sub, ..] if sub == "status" || sub == "finalize");
            if !itself {
                parts = rest;
            }
        }
        if let Some(resource) = parts.first() {
            info.resource.clone_from(resource);
        }
        info.name = parts.get(1).cloned().unwrap_or_default();
        info.subresource = parts.get(2).cloned().unwrap_or_default();
        info.rest = parts.get(3..).map(|rest| rest.join("/")).unwrap_or_default();
        // KubeVirt has subresources of two parts (`vnc/screenshot`); the port of `portforward` is not one of them.
        if info.group == kubevirt::GROUP && !info.rest.is_empty() && info.subresource != "portforward" {
            info.subresource = format!("{}/{}", info.subresource, std::mem::take(&mut info.rest));
        }
        if info.name.is_empty() {
            match info.verb {
                "get" if query.flag("watch") => info.verb = "watch",
                "get" => info.verb = "list",
                "delete" => info.verb = "deletecollection",
                _ => {}
            }
        } else if info.verb == "get" && info.subresource.is_empty() && query.flag("watch") {
            info.verb = "watch";
        }
        if is_old_watch && matches!(info.verb, "get" | "list") {
            info.verb = "watch";
        }
        // `list` and `watch` of one name by field selector are authorized by that name.
        if matches!(info.verb, "list" | "watch") && info.name.is_empty() {
            info.name = single_name(query.get("fieldSelector").unwrap_or_default());
            info.is_name_selected = !info.name.is_empty();
        }
        info
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "other",
    }
}

fn resource_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The one name that a selector asks for. It is read as it is when objects are selected by it: whoever may only list that name
/// must not get others by a selector that looks like it.
fn single_name(field_selector: &str) -> String {
    let selector = FieldSelector::parse(field_selector).unwrap_or_default();
    selector
        .exact("metadata.name")
        .filter(|name| croft_meta::names::is_path_segment_name(name).is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// The parsed query string; keys keep their order and may repeat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        // A pair with a broken escape or a semicolon is dropped, as Go drops it.
        let is_whole = |pair: &&str| !pair.is_empty() && !pair.contains(';') && has_whole_escapes(pair);
        let pairs = query.unwrap_or_default().split('&').filter(is_whole).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decode(key), form_decode(value))
        });
        Self(pairs.collect())
    }

    pub(crate) fn of(pairs: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Upstream's lenient boolean: present and neither `false` nor `0`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

fn has_whole_escapes(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|rest| rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)))
}

fn form_decode(text: &str) -> String {
    percent_decode(&text.replace('+', " ")).into_owned()
}

/// Undoes `%XX`; what is not valid UTF-8 afterwards is replaced, what is not a valid escape is kept.
pub(crate) fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[i], hex(i + 1), hex(i + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                i += 3;
            }
            (byte, ..) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(query))
    }

    #[test]
    fn paths_become_verbs_and_names() {
        // method, uri, verb, group/version, namespace, resource/name/subresource
        let table = [
            ("GET", "/api/v1/pods", "list", "/v1", "", "pods//"),
            ("GET", "/api/v1/pods?watch=1", "watch", "/v1", "", "pods//"),
            ("GET", "/api/v1/pods?watch=false", "list", "/v1", "", "pods//"),
            ("GET", "/api/v1/namespaces", "list", "/v1", "", "namespaces//"),
            ("GET", "/api/v1/namespaces/a", "get", "/v1", "a", "namespaces/a/"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update", "/v1", "a", "namespaces/a/finalize"),
            ("POST", "/api/v1/namespaces/a/pods", "create", "/v1", "a", "pods//"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "/v1", "a", "pods//"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch", "apps/v1", "a", "deployments/d/scale"),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", "watch", "/v1", "a", "pods/p/"),
            ("GET", "/api/v1/watch/pods", "watch", "/v1", "", "pods//"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list", "/v1", "", "pods/x/"),
            ("GET", "/api/v1/pods?fieldSelector=a%21%3Db%5C%2Cmetadata.name%3Dx", "list", "/v1", "", "pods//"),
            ("GET", "/api/v1/pods?watch=1;x&limit=1", "list", "/v1", "", "pods//"),
            ("DELETE", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "deletecollection", "/v1", "", "pods//"),
            (
                "GET",
                "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/vnc/screenshot",
                "get",
                "subresources.kubevirt.io/v1",
                "a",
                "virtualmachineinstances/v/vnc/screenshot",
            ),
            (
                "GET",
                "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/v/portforward/22/tcp",
                "get",
                "subresources.kubevirt.io/v1",
                "a",
                "virtualmachines/v/portforward",
            ),
            (
                "PUT",
                "/apis/subresources.kubevirt.io/v1/namespaces/a/expand-vm-spec",
                "update",
                "subresources.kubevirt.io/v1",
                "a",
                "expand-vm-spec//",
            ),
        ];
        for (method, uri, verb, gv, namespace, rest) in table {
            let info = parse(method, uri);
            assert!(info.is_resource, "{uri}");
            assert_eq!(info.verb, verb, "{uri}");
            assert_eq!(format!("{}/{}", info.group, info.version), gv, "{uri}");
            assert_eq!(info.namespace, namespace, "{uri}");
            assert_eq!(format!("{}/{}/{}", info.resource, info.name, info.subresource), rest, "{uri}");
        }
        for uri in ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/openapi/v3/api/v1"] {
            assert!(!parse("GET", uri).is_resource, "{uri}");
        }
    }
}

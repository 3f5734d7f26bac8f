//! Connections to what runs in a pod or behind a service: `attach`, `exec`, `portforward` and `proxy`.
//!
//! No pods run here, so that none of them leads anywhere. All the same they are asked for by the rules: whoever asks must be
//! allowed to, policies and webhooks have their say as upstream (CONNECT), and what is not there is not found.

use croft_meta::field::go_quote;
use croft_meta::{ApiError, Gvk};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::{Call, Target};
use crate::request::{Query, RequestInfo};
use crate::verbs::reviewed;

/// Is this kind the options of a connection?
pub(crate) fn is_options(kind: &Gvk) -> bool {
    kind.group.is_empty() && kind.kind.ends_with("Options")
}

/// What is asked for is refused, in the end.
pub(crate) async fn answer(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    let (subresource, is_service) = (target.subresource.as_str(), target.plural() == "services");
    let (options, name) = match subresource {
        "proxy" => (proxy_options(target.served.kind(), &call.info), proxied(target)?),
        "attach" => (stream_options("PodAttachOptions", &call.query), target.name.as_str()),
        "exec" => (stream_options("PodExecOptions", &call.query), target.name.as_str()),
        _ => (port_options(&call.query)?, target.name.as_str()),
    };
    reviewed::connection(call, target, options).await?;
    call.server.cache.fresh().await?;
    let found = Target::new(target.served.clone(), &target.namespace, name);
    if call.server.cache.collection(target.storage_key()).get(&found.id()).is_none() {
        return Err(found.not_found());
    }
    let named = go_quote(name);
    Err(match subresource {
        "proxy" if is_service => {
            let text = format!("no pods run here: nothing answers for service {named}");
            ApiError::new(503, "ServiceUnavailable", text)
        }
        "proxy" => ApiError::bad_request(format!("no pods run here: nothing answers for pod {named}")),
        "attach" => ApiError::bad_request(format!("no pods run here: there is nothing to attach to in pod {named}")),
        "exec" => ApiError::bad_request(format!("no pods run here: no command can be executed in pod {named}")),
        _ => ApiError::bad_request(format!("no pods run here: pod {named} has no ports to forward")),
    })
}

/// What a request through a proxy is about, as upstream's `getRequestOptions` has it.
pub(crate) fn proxy_options(kind: &str, info: &RequestInfo) -> Value {
    let mut options = json!({ "kind": format!("{kind}ProxyOptions"), "apiVersion": "v1" });
    let mut path = info.rest.trim_start_matches('/').to_owned();
    if !path.is_empty() {
        path.insert(0, '/');
    }
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    if !path.is_empty() {
        options["path"] = json!(path);
    }
    options
}

/// The name in `name`, `name:port` and `scheme:name:port`.
fn proxied(target: &Target) -> Result<&str, ApiError> {
    let parts: Vec<&str> = target.name.split(':').collect();
    let name = match parts[..] {
        [name] | [name, _] | ["" | "http" | "https", name, _] => name,
        _ => "",
    };
    if name.is_empty() {
        let what = if target.plural() == "services" { "service" } else { "pod" };
        return Err(ApiError::bad_request(format!("invalid {what} request {}", go_quote(&target.name))));
    }
    Ok(name)
}

fn stream_options(kind: &str, query: &Query) -> Value {
    // Upstream sets both, whatever is asked for.
    let mut options = json!({ "kind": kind, "apiVersion": "v1", "stdout": true, "stderr": true });
    for field in ["stdin", "tty"] {
        // Go reads anything but these as true.
        let is_set = |text: &str| text != "0" && !text.eq_ignore_ascii_case("false");
        if query.get(field).is_some_and(is_set) {
            options[field] = json!(true);
        }
    }
    if let Some(container) = query.get("container").filter(|name| !name.is_empty()) {
        options["container"] = json!(container);
    }
    if kind == "PodExecOptions" {
        let command: Vec<&str> = query.all("command").collect();
        options["command"] = if command.is_empty() { Value::Null } else { json!(command) };
    }
    options
}

fn port_options(query: &Query) -> Result<Value, ApiError> {
    let mut options = json!({ "kind": "PodPortForwardOptions", "apiVersion": "v1" });
    let mut ports = Vec::new();
    for text in query.all("ports").flat_map(|list| list.split(',')) {
        let invalid = |_| ApiError::bad_request(format!("ports: {} is not a port", go_quote(text)));
        ports.push(text.parse::<u16>().map_err(invalid)?);
    }
    if !ports.is_empty() {
        options["ports"] = json!(ports);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn options_are_what_upstream_reads_from_the_query() {
        let query = Query::parse(Some("stdin=true&stdout=false&tty=0&container=c&command=ls&command=-l"));
        assert_eq!(
            stream_options("PodExecOptions", &query),
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "stdout": true, "stderr": true,
                "container": "c", "command": ["ls", "-l"]})
        );
        assert_eq!(
            stream_options("PodAttachOptions", &Query::parse(None)),
            json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stdout": true, "stderr": true})
        );
        assert_eq!(
            port_options(&Query::parse(Some("ports=80,443&ports=8080"))).unwrap()["ports"],
            json!([80, 443, 8080])
        );
        assert_eq!(port_options(&Query::parse(Some("ports=http"))).unwrap_err().code(), 400);
    }

    #[test]
    fn the_path_of_a_proxy_keeps_its_slashes() {
        let path_of = |path: &str| {
            let info = RequestInfo::parse(&Method::GET, path, &Query::default());
            proxy_options("Pod", &info).get("path").cloned()
        };
        let pod = "/api/v1/namespaces/a/pods/web/proxy";
        assert_eq!(path_of(pod), None);
        assert_eq!(path_of(&format!("{pod}/")), Some(json!("/")));
        assert_eq!(path_of(&format!("{pod}/a/b")), Some(json!("/a/b")));
        assert_eq!(path_of(&format!("{pod}/a/")), Some(json!("/a/")));
    }
}

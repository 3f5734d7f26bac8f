//! Which requests are written down unless a file says it (`rules`). It cannot be put into such a file: how a request ends counts,
//! and rules do not know that.

use super::about::Asked;
use super::event::ObjectRef;
use crate::state;

/// Whether a request may have to be written down, before it is known how it ends.
pub(super) fn may_be_recorded(asked: &Asked) -> bool {
    asked.tried.is_some() || asked.is_connection || asked.is_state || !asked.is_read()
}

/// What changes something, who comes and goes, and who is not let in. What only looks is not written down, with two
/// exceptions: a connection into a machine, and the state, which has every secret in it.
pub(super) fn is_recorded(asked: &Asked, code: u16) -> bool {
    let is_refused = matches!(code, 401 | 403);
    // A password that came with any request is a way to sign in.
    if asked.tried.is_some() && (is_refused || code == 429) {
        return true;
    }
    if asked.is_read() {
        return asked.is_connection || asked.is_state;
    }
    if asked.object.as_ref().is_some_and(only_asks) {
        return false;
    }
    if asked.is_continued && code < 400 {
        return false;
    }
    is_refused || !asked.object.as_ref().is_some_and(is_noise)
}

/// Questions that are put as POST.
fn only_asks(object: &ObjectRef) -> bool {
    let is_review = match object.api_group.as_str() {
        "authorization.k8s.io" => true,
        "authentication.k8s.io" => object.resource.ends_with("reviews"),
        _ => false,
    };
    is_review || object.subresource.starts_with("find")
}

/// Signs of life and reports, which would drown the rest.
fn is_noise(object: &ObjectRef) -> bool {
    object.is_of("coordination.k8s.io", "leases")
        || object.is_of("", "events")
        || object.is_of("events.k8s.io", "events")
}

pub(super) fn is_state(path: &str) -> bool {
    path == state::PATH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Query, RequestInfo};

    fn asked(method: &str, path: &str) -> Asked {
        let info = RequestInfo::parse(&method.parse().unwrap(), path, &Query::default());
        let object = info.is_resource.then(|| super::super::about::of_resource(&info));
        Asked { verb: info.verb, object, is_state: is_state(path), ..Asked::default() }
    }

    #[test]
    fn changes_are_recorded_and_looks_are_not() {
        for (method, path, code, expected) in [
            ("POST", "/api/v1/namespaces/a/pods", 201, true),
            ("PATCH", "/api/v1/namespaces/a/pods/p", 200, true),
            ("DELETE", "/api/v1/namespaces/a/pods", 200, true),
            ("PUT", "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/v/start", 202, true),
            ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token", 201, true),
            ("GET", "/api/v1/namespaces/a/secrets/s", 200, false),
            ("GET", "/api/v1/namespaces/a/secrets/s", 403, false),
            ("GET", "/croft/v1/state", 200, true),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", 200, false),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", 403, true),
            ("POST", "/api/v1/namespaces/a/events", 201, false),
            ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", 201, false),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 201, false),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 401, false),
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", 201, false),
        ] {
            assert_eq!(is_recorded(&asked(method, path), code), expected, "{method} {path} {code}");
        }
    }

    #[test]
    fn who_is_not_let_in_is_recorded() {
        let tried = Asked { tried: Some("admin".to_owned()), ..asked("GET", "/api/v1/pods") };
        for (code, expected) in [(200, false), (401, true), (429, true), (404, false)] {
            assert_eq!(is_recorded(&tried, code), expected, "{code}");
        }
    }

    #[test]
    fn an_upload_is_recorded_once_and_when_it_fails() {
        let piece = Asked { is_continued: true, ..asked("PATCH", "/croft/v1/images/a/b/upload") };
        assert!(!is_recorded(&piece, 204) && is_recorded(&piece, 409));
        let connection = Asked { is_connection: true, ..asked("GET", "/x") };
        assert!(is_recorded(&connection, 101) && is_recorded(&connection, 403));
    }
}

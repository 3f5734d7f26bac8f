//! What somebody wants to do, as the authorizer sees it.

use croft_meta::ApiError;
use croft_meta::field::go_quote;

use crate::request::RequestInfo;
use crate::user::UserInfo;

/// One action on a resource, or on a path that is no resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes<'a> {
    pub(crate) is_resource: bool,
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) name: &'a str,
    /// Empty at the cluster scope, and for lists over all namespaces.
    pub(crate) namespace: &'a str,
    /// Only of requests that are not about a resource.
    pub(crate) path: &'a str,
}

impl<'a> Attributes<'a> {
    pub(crate) fn of(info: &'a RequestInfo) -> Self {
        if !info.is_resource {
            return Self::path(info.verb, &info.path);
        }
        Self {
            is_resource: true,
            verb: info.verb,
            group: &info.group,
            resource: &info.resource,
            subresource: &info.subresource,
            name: &info.name,
            namespace: &info.namespace,
            path: "",
        }
    }

    pub(crate) fn path(verb: &'a str, path: &'a str) -> Self {
        Self { verb, path, ..Self::default() }
    }

    /// The 403 of a denied request. `reason` is the decision's; empty says nothing more.
    pub(crate) fn forbidden(&self, user: &UserInfo, reason: &str) -> ApiError {
        // Upstream keeps what the client sent from reading as HTML in a browser.
        let mut why = self.denial(user).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !reason.is_empty() {
            why.push_str(": ");
            why.push_str(reason);
        }
        ApiError::forbidden(self.group, self.resource, self.name, why)
    }

    fn denial(&self, user: &UserInfo) -> String {
        let (user, verb) = (go_quote(&user.name), self.verb);
        if !self.is_resource {
            return format!("User {user} cannot {verb} path {}", go_quote(self.path));
        }
        let resource = match self.subresource {
            "" => go_quote(self.resource),
            subresource => go_quote(&format!("{}/{subresource}", self.resource)),
        };
        let scope = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", go_quote(namespace)),
        };
        format!("User {user} cannot {verb} resource {resource} in API group {} {scope}", go_quote(self.group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_read_as_upstreams() {
        let pods = Attributes { is_resource: true, verb: "list", resource: "pods", ..Attributes::default() };
        let table = [
            (
                Attributes { namespace: "y", ..pods },
                "",
                r#"pods is forbidden: User "x" cannot list resource "pods" in API group "" in the namespace "y""#,
            ),
            (
                pods,
                "",
                r#"pods is forbidden: User "x" cannot list resource "pods" in API group "" at the cluster scope"#,
            ),
            (
                Attributes {
                    verb: "patch",
                    group: "apps",
                    resource: "deployments",
                    subresource: "scale",
                    name: "a",
                    ..pods
                },
                "RBAC: no",
                r#"deployments.apps "a" is forbidden: User "x" cannot patch resource "deployments/scale" in API group "apps" at the cluster scope: RBAC: no"#,
            ),
            (Attributes::path("get", "/z"), "", r#"forbidden: User "x" cannot get path "/z""#),
            (Attributes::path("get", "/<b>"), "", r#"forbidden: User "x" cannot get path "/&lt;b&gt;""#),
        ];
        for (attributes, reason, message) in table {
            let error = attributes.forbidden(&UserInfo::new("x", &[]), reason);
            assert_eq!((error.code(), error.message()), (403, message));
        }
    }
}

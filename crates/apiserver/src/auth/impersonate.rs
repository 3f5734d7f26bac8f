//! Acting as somebody else, by the `Impersonate-*` headers, as far as the caller may.

use std::collections::BTreeMap;

use croft_meta::ApiError;
use croft_meta::field::go_quote;
use http::HeaderMap;

use super::{ANONYMOUS, AUTHENTICATED, Attributes, Rbac, UNAUTHENTICATED, service_account};
use crate::request::percent_decode;
use crate::user::UserInfo;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// One thing that the caller wants to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    User(String),
    ServiceAccount { namespace: String, name: String },
    Group(String),
    Extra { key: String, value: String },
    Uid(String),
}

/// Who the request is made as: the caller, or whom the headers name. `uri` is for the message only.
pub(crate) fn impersonate(rbac: &Rbac, caller: UserInfo, headers: &HeaderMap, uri: &str) -> Result<UserInfo, ApiError> {
    let wishes = wishes(headers);
    let Some(first) = wishes.first() else { return Ok(caller) };
    if !matches!(first, Wish::User(_) | Wish::ServiceAccount { .. }) {
        let wishes: Vec<String> = wishes.iter().map(Wish::as_reference).collect();
        let message = format!(
            "Internal Server Error: {}: requested [{}] without impersonating a user",
            go_quote(uri),
            wishes.join(" ")
        );
        return Err(ApiError::new(500, "InternalError", message));
    }
    for wish in &wishes {
        let wanted = wish.attributes();
        let decision = rbac.authorize(&caller, &wanted);
        if !decision.allowed {
            return Err(wanted.forbidden(&caller, &decision.reason));
        }
    }
    let user = granted(wishes);
    tracing::debug!(caller = caller.name, user = user.name, groups = ?user.groups, "impersonation");
    Ok(user)
}

/// The user first, if there is one.
fn wishes(headers: &HeaderMap) -> Vec<Wish> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).filter(|value| !value.is_empty());
    let mut wishes = Vec::new();
    if let Some(user) = first(USER) {
        wishes.push(match service_account::split_username(&user) {
            Some((namespace, name)) => Wish::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() },
            None => Wish::User(user),
        });
    }
    wishes.extend(headers.get_all(GROUP).iter().map(text).map(Wish::Group));
    for (name, value) in headers {
        // Header names arrive in lower case; keys with other characters are percent-encoded.
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            wishes.push(Wish::Extra { key: percent_decode(key).into_owned(), value: text(value) });
        }
    }
    wishes.extend(first(UID).map(Wish::Uid));
    wishes
}

impl Wish {
    /// What the caller needs the verb `impersonate` on.
    fn attributes(&self) -> Attributes<'_> {
        let wanted = Attributes { is_resource: true, verb: "impersonate", ..Attributes::default() };
        let authentication = "authentication.k8s.io";
        match self {
            Self::User(name) => Attributes { resource: "users", name, ..wanted },
            Self::ServiceAccount { namespace, name } => {
                Attributes { resource: "serviceaccounts", namespace, name, ..wanted }
            }
            Self::Group(name) => Attributes { resource: "groups", name, ..wanted },
            Self::Extra { key, value } => {
                Attributes { group: authentication, resource: "userextras", subresource: key, name: value, ..wanted }
            }
            Self::Uid(uid) => Attributes { group: authentication, resource: "uids", name: uid, ..wanted },
        }
    }

    /// As Go prints an ObjectReference: kind, namespace, name, uid, apiVersion, resourceVersion, fieldPath.
    fn as_reference(&self) -> String {
        let version = "authentication.k8s.io/v1";
        let (kind, name, version, path) = match self {
            Self::User(name) | Self::ServiceAccount { name, .. } => ("User", name, "", ""),
            Self::Group(name) => ("Group", name, "", ""),
            Self::Extra { key, value } => ("UserExtra", value, version, key.as_str()),
            Self::Uid(uid) => ("UID", uid, version, ""),
        };
        format!("{{{kind}  {name}  {version}  {path}}}")
    }
}

/// All wishes came true.
fn granted(wishes: Vec<Wish>) -> UserInfo {
    let groups_named = wishes.iter().any(|wish| matches!(wish, Wish::Group(_)));
    let mut user = UserInfo { extra: BTreeMap::new(), ..UserInfo::default() };
    for wish in wishes {
        match wish {
            Wish::User(name) => user.name = name,
            Wish::ServiceAccount { namespace, name } => {
                user.name = service_account::username(&namespace, &name);
                if !groups_named {
                    user.groups = service_account::groups(&namespace);
                }
            }
            Wish::Group(group) => user.groups.push(group),
            Wish::Extra { key, value } => user.extra.entry(key).or_default().push(value),
            Wish::Uid(uid) => user.uid = uid,
        }
    }
    if user.name == ANONYMOUS {
        if !user.is_member_of(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.to_owned());
        }
    } else if !user.is_member_of(AUTHENTICATED) && !user.is_member_of(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;
    use crate::auth::testing::{TestCache, cluster_role, cluster_role_binding};

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn headers(pairs: Pairs<'_>) -> HeaderMap {
        let pair =
            |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        pairs.iter().map(pair).collect()
    }

    async fn rbac() -> (Rbac, TestCache) {
        let cache = TestCache::new([
            cluster_role(
                "impersonator",
                json!([
                    {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["ann", ANONYMOUS]},
                    {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups", "serviceaccounts"]},
                    {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes", "userextras/a.io/b", "uids"]},
                ]),
            ),
            cluster_role_binding("b", "impersonator", &[("User", "bob")]),
        ])
        .await;
        (Rbac::new(&cache), cache)
    }

    #[tokio::test]
    async fn granted_users_are_as_upstreams() {
        let (rbac, _cache) = rbac().await;
        let table: [(Pairs<'_>, &str, &[&str]); 6] = [
            (&[("impersonate-user", "ann")], "ann", &[AUTHENTICATED]),
            (
                &[("impersonate-user", "ann"), ("impersonate-group", "a"), ("impersonate-group", "b")],
                "ann",
                &["a", "b", AUTHENTICATED],
            ),
            (&[("impersonate-user", "ann"), ("impersonate-group", UNAUTHENTICATED)], "ann", &[UNAUTHENTICATED]),
            (&[("impersonate-user", ANONYMOUS)], ANONYMOUS, &[UNAUTHENTICATED]),
            (
                &[("impersonate-user", "system:serviceaccount:ns:sa")],
                "system:serviceaccount:ns:sa",
                &["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED],
            ),
            (
                &[("impersonate-user", "system:serviceaccount:ns:sa"), ("impersonate-group", "a")],
                "system:serviceaccount:ns:sa",
                &["a", AUTHENTICATED],
            ),
        ];
        for (wanted, name, groups) in table {
            let user = impersonate(&rbac, UserInfo::new("bob", &[]), &headers(wanted), "/").unwrap();
            assert_eq!(user, UserInfo::new(name, groups));
        }
        let all = headers(&[
            ("impersonate-user", "ann"),
            ("impersonate-uid", "7"),
            ("Impersonate-Extra-Scopes", "x"),
            ("impersonate-extra-scopes", "y"),
            ("impersonate-extra-a.io%2fb", "z"),
        ]);
        let user = impersonate(&rbac, UserInfo::new("bob", &[]), &all, "/").unwrap();
        assert_eq!(user.uid, "7");
        assert_eq!(user.extra["scopes"], ["x", "y"]);
        assert_eq!(user.extra["a.io/b"], ["z"]);
    }

    #[tokio::test]
    async fn no_headers_change_nothing() {
        let (rbac, _cache) = rbac().await;
        let bob = UserInfo::new("bob", &["x"]);
        assert_eq!(impersonate(&rbac, bob.clone(), &headers(&[("impersonate-user", "")]), "/").unwrap(), bob);
    }

    #[tokio::test]
    async fn refusals_read_as_upstreams() {
        let (rbac, _cache) = rbac().await;
        let table: [(&str, Pairs<'_>, u16, &str); 4] = [
            (
                "eve",
                &[("impersonate-user", "ann")],
                403,
                r#"users "ann" is forbidden: User "eve" cannot impersonate resource "users" in API group "" at the cluster scope"#,
            ),
            (
                "bob",
                &[("impersonate-user", "cid")],
                403,
                r#"users "cid" is forbidden: User "bob" cannot impersonate resource "users" in API group "" at the cluster scope"#,
            ),
            (
                "bob",
                &[("impersonate-user", "ann"), ("impersonate-extra-other", "v")],
                403,
                r#"userextras.authentication.k8s.io "v" is forbidden: User "bob" cannot impersonate resource "userextras/other" in API group "authentication.k8s.io" at the cluster scope"#,
            ),
            (
                "bob",
                &[("impersonate-group", "g")],
                500,
                r#"Internal Server Error: "/api": requested [{Group  g    }] without impersonating a user"#,
            ),
        ];
        for (caller, wanted, code, message) in table {
            let error = impersonate(&rbac, UserInfo::new(caller, &[]), &headers(wanted), "/api").unwrap_err();
            assert_eq!((error.code(), error.message()), (code, message));
        }
    }
}

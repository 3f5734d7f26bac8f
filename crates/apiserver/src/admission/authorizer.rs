//! `authorizer` in expressions, answered by the roles.

use std::fmt;

use croft_schema::expression::{Asked, Authorize, Verdict};

use crate::auth::{AUTHENTICATED, Attributes, service_account};
use crate::call::{Call, Target};
use crate::user::UserInfo;

/// Who makes a request, what roles let them do, and what the request is about.
pub(crate) struct Caller<'a> {
    pub(crate) call: &'a Call,
    pub(crate) target: &'a Target,
    pub(crate) subresource: &'a str,
    /// A namespace is in itself.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.call.user.name).finish()
    }
}

impl Authorize for Caller<'_> {
    fn check(&self, asked: &Asked) -> Verdict {
        let wanted = Attributes {
            is_resource: asked.path.is_empty(),
            verb: &asked.verb,
            group: &asked.group,
            resource: &asked.resource,
            subresource: &asked.subresource,
            name: &asked.name,
            namespace: &asked.namespace,
            path: &asked.path,
        };
        let rbac = &self.call.server.auth.rbac;
        let decision = match &asked.service_account {
            None => rbac.authorize(&self.call.user, &wanted),
            Some((namespace, name)) => {
                let mut user = UserInfo::new(service_account::username(namespace, name), &[]);
                user.groups = service_account::groups(namespace);
                user.groups.push(AUTHENTICATED.to_owned());
                rbac.authorize(&user, &wanted)
            }
        };
        Verdict { is_allowed: decision.allowed, reason: decision.reason }
    }

    fn request_resource(&self) -> Asked {
        Asked {
            group: self.target.group().to_owned(),
            resource: self.target.plural().to_owned(),
            subresource: self.subresource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
            ..Asked::default()
        }
    }
}

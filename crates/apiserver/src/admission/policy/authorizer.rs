//! `authorizer`, answered by the roles.

use std::fmt;

use croft_schema::expression::{Asked, Authorize, Verdict};

use super::request::Request;
use crate::auth::{AUTHENTICATED, Attributes, service_account};
use crate::user::UserInfo;

/// Who makes a request, and what roles let them do.
pub(super) struct Caller<'a>(pub(super) &'a Request<'a>);

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.0.call.user.name).finish()
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
        let rbac = &self.0.call.server.auth.rbac;
        let decision = match &asked.service_account {
            None => rbac.authorize(&self.0.call.user, &wanted),
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
        let Request { target, subresource, .. } = self.0;
        Asked {
            group: target.group().to_owned(),
            resource: target.plural().to_owned(),
            subresource: (*subresource).to_owned(),
            namespace: target.namespace.clone(),
            name: self.0.name().to_owned(),
            ..Asked::default()
        }
    }
}

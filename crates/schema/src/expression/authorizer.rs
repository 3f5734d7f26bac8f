//! `authorizer`: what the one who makes the request, or a service account, may do.
//!
//! A question is put together call by call (`authorizer.group('apps').resource('deployments').namespace('a')`) and
//! asked by `check`.

use std::fmt;
use std::sync::Arc;

use super::Fault;
use super::value::Val;

/// What is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Of a service account (namespace, name) instead of who makes the request.
    pub service_account: Option<(String, String)>,
    pub verb: String,
    /// A plain path; empty if a resource is meant.
    pub path: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub is_allowed: bool,
    pub reason: String,
}

/// Who knows what is allowed.
pub trait Authorize: fmt::Debug {
    fn check(&self, asked: &Asked) -> Verdict;
    /// What the request itself is about, as a question without a verb.
    fn request_resource(&self) -> Asked;
}

/// How far a question has come.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Nothing(Asked),
    Group(Asked),
    Resource(Asked),
    Path(Asked),
    Answered(Verdict),
}

impl Question {
    /// Calls a method of it.
    pub(super) fn call<'a>(
        &self,
        method: &str,
        args: &[Val<'a>],
        authorizer: &dyn Authorize,
    ) -> Result<Val<'a>, Fault> {
        let text = |index: usize| match args.get(index) {
            Some(Val::Text(text)) => Ok(text.to_string()),
            _ => Err(Fault::no_overload()),
        };
        let next = match (self, method, args.len()) {
            (Self::Nothing(asked), "path", 1) => {
                let path = text(0)?;
                if path.is_empty() {
                    return Err(Fault::failed("path must not be empty"));
                }
                Self::Path(Asked { path, ..asked.clone() })
            }
            (Self::Nothing(asked), "group", 1) => Self::Group(Asked { group: text(0)?, ..asked.clone() }),
            (Self::Nothing(asked), "serviceAccount", 2) => {
                Self::Nothing(Asked { service_account: Some((text(0)?, text(1)?)), ..asked.clone() })
            }
            (Self::Group(asked), "resource", 1) => {
                let resource = text(0)?;
                if resource.is_empty() {
                    return Err(Fault::failed("resource must not be empty"));
                }
                Self::Resource(Asked { resource, ..asked.clone() })
            }
            (Self::Resource(asked), "subresource", 1) => {
                Self::Resource(Asked { subresource: text(0)?, ..asked.clone() })
            }
            (Self::Resource(asked), "namespace", 1) => Self::Resource(Asked { namespace: text(0)?, ..asked.clone() }),
            (Self::Resource(asked), "name", 1) => Self::Resource(Asked { name: text(0)?, ..asked.clone() }),
            // Roles know no selectors: with one, as much is allowed as without.
            (Self::Resource(asked), "fieldSelector" | "labelSelector", 1) => {
                text(0)?;
                Self::Resource(asked.clone())
            }
            (Self::Resource(asked) | Self::Path(asked), "check", 1) => {
                Self::Answered(authorizer.check(&Asked { verb: text(0)?, ..asked.clone() }))
            }
            (Self::Answered(verdict), "allowed", 0) => return Ok(Val::Bool(verdict.is_allowed)),
            (Self::Answered(verdict), "reason", 0) => return Ok(Val::text(verdict.reason.as_str())),
            (Self::Answered(_), "errored", 0) => return Ok(Val::Bool(false)),
            (Self::Answered(_), "error", 0) => return Ok(Val::text("")),
            _ => return Err(Fault::no_overload()),
        };
        Ok(Val::Authorizer(Arc::new(next)))
    }
}

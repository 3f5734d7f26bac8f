//! What a request is about, found before it is answered.

use http::HeaderMap;

use super::event::ObjectRef;
use super::policy;
use crate::auth::Attributes;
use crate::auth::authenticate::basic_user;
use crate::pieces;
use crate::request::{Query, RequestInfo};
use crate::rest;
use crate::server::ApiServer;
use crate::streams::Streamed;

#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) verb: &'static str,
    pub(super) object: Option<ObjectRef>,
    pub(super) path: String,
    /// Its answer goes on for as long as the client wants.
    pub(super) is_long: bool,
    /// Into a machine.
    pub(super) is_connection: bool,
    /// Of all objects.
    pub(super) is_state: bool,
    /// A further piece of what was recorded when it began.
    pub(super) is_continued: bool,
    /// The user whose password came with the request.
    pub(super) tried: Option<String>,
}

impl Asked {
    pub(super) fn new(
        server: &ApiServer,
        info: &RequestInfo,
        query: &Query,
        headers: &HeaderMap,
        streamed: Option<&Streamed>,
        is_everything_asked: bool,
    ) -> Self {
        let mut asked = Self {
            verb: info.verb,
            path: info.path.clone(),
            is_long: info.verb == "watch" || streamed.is_some(),
            is_connection: matches!(streamed, Some(Streamed::Machine)),
            is_state: policy::is_state(&info.path),
            tried: basic_user(headers),
            ..Self::default()
        };
        // Most requests only look, and are done with here.
        if !is_everything_asked && !policy::may_be_recorded(&asked) {
            return asked;
        }
        if info.is_resource {
            asked.object = Some(of_resource(info));
        } else if let Some(Streamed::Piece(image)) = streamed {
            asked.object = Some(of_upload(&image.attributes()));
            asked.is_continued = pieces::is_continued(headers);
        } else if rest::is_rest(info) {
            (asked.verb, asked.object) = rest::about(&server.catalog(), info, query);
        }
        asked
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch" | "head" | "options")
    }
}

pub(super) fn of_resource(info: &RequestInfo) -> ObjectRef {
    ObjectRef {
        resource: info.resource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        uid: String::new(),
        api_group: info.group.clone(),
        api_version: info.version.clone(),
        subresource: info.subresource.clone(),
    }
}

fn of_upload(attributes: &Attributes<'_>) -> ObjectRef {
    ObjectRef {
        resource: attributes.resource.to_owned(),
        namespace: attributes.namespace.to_owned(),
        name: attributes.name.to_owned(),
        uid: String::new(),
        api_group: attributes.group.to_owned(),
        api_version: "v1beta1".to_owned(),
        subresource: "upload".to_owned(),
    }
}

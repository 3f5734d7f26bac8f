//! One request on its way through the pipeline.

use std::sync::Arc;

use bytes::Bytes;
use croft_meta::{ApiError, Gvk};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::audit::Trail;
use crate::auth::authenticate::Standing;
use crate::catalog::{Catalog, Served};
use crate::negotiate::{self, Output};
use crate::request::{Query, RequestInfo};
use crate::server::ApiServer;
use crate::sessions::Session;
use crate::user::UserInfo;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) server: Arc<ApiServer>,
    /// The catalog of the moment the request came in.
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) user: UserInfo,
    /// Made by a part of Croft in this process, which may do what no user may.
    pub(crate) is_internal: bool,
    pub(crate) info: RequestInfo,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// What the audit log is to know of the request that this is a part of.
    pub(crate) trail: Arc<Trail>,
    /// Of somebody who came by a password: against what it was proven.
    pub(crate) standing: Option<Standing>,
    /// Of a stream: what it lasts as long as.
    pub(crate) session: Option<Arc<Session>>,
    /// Do admission webhooks have a say? Not in what the server writes for itself: they could keep it from starting.
    pub(crate) asks_webhooks: bool,
    /// Do admission policies? Not in a part of what they were asked about as a whole.
    pub(crate) asks_policies: bool,
    warnings: Mutex<Vec<String>>,
}

impl Call {
    pub(crate) fn new(
        server: Arc<ApiServer>,
        user: UserInfo,
        is_internal: bool,
        info: RequestInfo,
        query: Query,
        headers: HeaderMap,
        body: Bytes,
    ) -> Self {
        let catalog = server.catalog();
        let (trail, warnings) = (Arc::default(), Mutex::default());
        Self {
            server,
            catalog,
            user,
            is_internal,
            info,
            query,
            headers,
            body,
            trail,
            standing: None,
            session: None,
            asks_webhooks: true,
            asks_policies: true,
            warnings,
        }
    }

    /// Cancelled when a stream is to end: with its credential, or with the server.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.session.as_ref().map_or_else(|| self.server.stopping(), |session| session.ended())
    }

    /// A call that the server makes itself, about one object.
    pub(crate) fn internal(server: &Arc<ApiServer>, target: &Target) -> Self {
        Self { asks_webhooks: false, ..Self::about(server, target, UserInfo::internal(), true) }
    }

    /// What one call does to another object: in the name of the same user, or as the platform.
    pub(crate) fn for_object(call: &Self, target: &Target, is_internal: bool) -> Self {
        let made = Self::about(&call.server, target, call.user.clone(), is_internal);
        let Self { asks_webhooks, asks_policies, .. } = *call;
        Self { asks_webhooks, asks_policies, trail: Arc::clone(&call.trail), ..made }
    }

    /// A part of a call whose webhooks and policies have been asked about the whole.
    pub(crate) fn already_admitted(call: &Self, target: &Target) -> Self {
        Self { asks_webhooks: false, asks_policies: false, ..Self::for_object(call, target, call.is_internal) }
    }

    fn about(server: &Arc<ApiServer>, target: &Target, user: UserInfo, is_internal: bool) -> Self {
        let query = Query::default();
        let gvr = target.served.resource.gvr(&target.served.version().name);
        let mut info = RequestInfo::parse(&Method::POST, "/", &query);
        info.is_resource = true;
        info.verb = "create";
        (info.group, info.version, info.resource) = (gvr.group, gvr.version, gvr.resource);
        info.namespace.clone_from(&target.namespace);
        Self::new(Arc::clone(server), user, is_internal, info, query, HeaderMap::new(), Bytes::new())
    }

    /// Tells the client something through a `Warning` header; once, however often a write is tried.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.lock();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    pub(crate) fn header(&self, name: http::header::HeaderName) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE)
    }

    /// The form that the client wants its answer in.
    pub(crate) fn output(&self) -> Result<Output, ApiError> {
        Ok(Output { is_pretty: self.query.flag("pretty"), ..negotiate::output(&self.headers)? })
    }

    pub(crate) fn user_agent(&self) -> &str {
        self.header(USER_AGENT)
    }
}

/// What a resource request is about.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) served: Served,
    /// Empty for cluster-scoped kinds and for requests across all namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl Target {
    pub(crate) fn new(served: Served, namespace: &str, name: &str) -> Self {
        let namespace = if served.resource.is_namespaced() { namespace } else { "" };
        Self { served, namespace: namespace.to_owned(), name: name.to_owned(), subresource: String::new() }
    }

    pub(crate) fn group(&self) -> &str {
        self.served.group()
    }

    pub(crate) fn plural(&self) -> &str {
        self.served.plural()
    }

    pub(crate) fn gvk(&self) -> Gvk {
        self.served.gvk()
    }

    /// The object's place in its collection.
    pub(crate) fn id(&self) -> String {
        id(&self.namespace, &self.name)
    }

    pub(crate) fn storage_key(&self) -> &str {
        &self.served.resource.storage_key
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(self.group(), self.plural(), &self.name)
    }

    pub(crate) fn conflict(&self, why: impl std::fmt::Display) -> ApiError {
        ApiError::conflict(self.group(), self.plural(), &self.name, why)
    }
}

pub(crate) fn id(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

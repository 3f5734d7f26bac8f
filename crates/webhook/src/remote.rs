//! What rules see of other objects: what the API server says when they look.
//!
//! Rules are ordinary functions, so they run on a thread that may wait. Nothing is kept between two questions: an object
//! that was acknowledged is seen, also right after it was made. A question that has no answer is not taken for "there is no
//! such object": the decision as a whole fails, and the API server does what its configuration says for that case.

use std::sync::Arc;
use std::time::Duration;

use croft_api::Lookup;
use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::kinds::{Kind, Kinds};
use crate::review::User;

/// Why something could not be found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unknown {
    #[error("asking the API server for {path}")]
    Ask {
        path: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("asking the API server for {path}: no answer within {within:?}")]
    Late { path: String, within: Duration },
    #[error("{plural}.{group} is no kind that rules may look at")]
    Kind { group: String, plural: String },
}

/// The objects of one server, as one decision sees them.
pub(crate) struct Remote<'a> {
    pub(crate) client: kube::Client,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) user: &'a User,
    pub(crate) runtime: Handle,
    pub(crate) deadline: Instant,
    /// The first thing that could not be found out; nothing is asked after it.
    pub(crate) failed: Mutex<Option<Unknown>>,
}

impl Remote<'_> {
    pub(crate) fn new(client: kube::Client, kinds: Arc<Kinds>, user: &User, deadline: Instant) -> Remote<'_> {
        Remote { client, kinds, user, runtime: Handle::current(), deadline, failed: Mutex::new(None) }
    }

    /// None if there is no such object, or kind; or if it could not be found out, which is noted.
    fn ask(&self, method: Method, path: String, body: Option<&Value>) -> Option<Value> {
        if self.failed.lock().is_some() {
            return None;
        }
        let started = Instant::now();
        let asked = self.request(method, &path, body);
        let outcome = self.runtime.block_on(tokio::time::timeout_at(self.deadline, asked));
        let failure = match outcome {
            Ok(Ok(found)) => return Some(found),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return None,
            Ok(Err(source)) => Unknown::Ask { path, source: Box::new(source) },
            Err(_) => Unknown::Late { path, within: started.elapsed() },
        };
        self.failed.lock().get_or_insert(failure);
        None
    }

    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
        let request =
            Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, "application/json");
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        self.client.request(request.body(bytes).map_err(kube::Error::HttpError)?).await
    }

    fn kind(&self, group: &str, plural: &str) -> Option<&Kind> {
        let found = self.kinds.get(group, plural);
        if found.is_none() {
            let unknown = Unknown::Kind { group: group.to_owned(), plural: plural.to_owned() };
            self.failed.lock().get_or_insert(unknown);
        }
        found
    }
}

impl Lookup for Remote<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        // There is no object without a name; its path would be that of the list.
        let kind = self.kind(group, plural).filter(|_| !name.is_empty())?;
        self.ask(Method::GET, kind.path(namespace, name), None)
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let Some(kind) = self.kind(group, plural) else { return Vec::new() };
        let mut list = self.ask(Method::GET, kind.path(namespace, ""), None).unwrap_or_default();
        let Value::Array(mut items) = list["items"].take() else { return Vec::new() };
        // Those of built-in kinds do not say what they are.
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.entry("apiVersion").or_insert_with(|| kind.api_version().into());
            item.entry("kind").or_insert_with(|| kind.kind.as_str().into());
        }
        items
    }

    fn caller_may(&self, verb: &str, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        let (resource, subresource) = plural.split_once('/').unwrap_or((plural, ""));
        let wanted = json!({"verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name});
        let user = self.user;
        let spec = json!({"user": user.username, "groups": user.groups, "uid": user.uid, "extra": user.extra,
            "resourceAttributes": wanted});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned();
        self.ask(Method::POST, path, Some(&review)).is_some_and(|review| review["status"]["allowed"] == true)
    }
}

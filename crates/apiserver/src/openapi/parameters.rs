//! The query and path parameters of all operations.

use std::borrow::Cow;

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) ty: &'static str,
    pub(super) description: Cow<'static, str>,
    pub(super) in_path: bool,
    /// Its name among the shared parameters of an OpenAPI v2 document. `dryRun` and `fieldValidation` are always
    /// written out: kubectl decides by them what the server supports, and does not follow references.
    pub(super) shared: Option<&'static str>,
}

const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter { name, ty, description: Cow::Borrowed(description), in_path: false, shared: Some(name) }
}

const fn inline(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, ty: "string", description: Cow::Borrowed(description), in_path: false, shared: None }
}

pub(super) const PRETTY: Parameter = query(
    "pretty",
    "string",
    "If 'true', the answer is indented. Off unless the user agent is a browser or a command-line tool such as curl.",
);
const ALLOW_WATCH_BOOKMARKS: Parameter = query(
    "allowWatchBookmarks",
    "boolean",
    "Lets the server send BOOKMARK events in a watch: objects that carry nothing but a newer resourceVersion. They come \
     when the server sees fit. Only for watches.",
);
const CONTINUE: Parameter = query(
    "continue",
    "string",
    "The token that the last page of a list came with: asks for the next page of the same list. All other parameters \
     must stay the same. A token that is too old is refused with 410; the list must then start again, or go on with the \
     token in that answer, which shows newer objects. Not for watches.",
);
const FIELD_SELECTOR: Parameter =
    query("fieldSelector", "string", "Only objects whose fields match, for example metadata.name=a. Default: all.");
const LABEL_SELECTOR: Parameter =
    query("labelSelector", "string", "Only objects whose labels match, for example app=web,tier!=db. Default: all.");
const LIMIT: Parameter = query(
    "limit",
    "integer",
    "At most this many objects; if there are more, the list's metadata has a continue token for the next page. Together \
     with it, the pages show one moment's state. Not for watches.",
);
const RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "string",
    "Which state may be answered from: see \
     https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions. Default: unset.",
);
const RESOURCE_VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "string",
    "How resourceVersion is meant in a list: NotOlderThan or Exact. Required together with sendInitialEvents.",
);
const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "A watch then starts with an ADDED event for each object there is, followed by a bookmark with the annotation \
     k8s.io/initial-events-end, and goes on with changes. Needs resourceVersionMatch=NotOlderThan.",
);
const TIMEOUT_SECONDS: Parameter =
    query("timeoutSeconds", "integer", "Ends the call after this time, whether or not anything happened.");
const WATCH: Parameter = query(
    "watch",
    "boolean",
    "Answers with a stream of changes instead of a list. Give the resourceVersion to start after.",
);
const DRY_RUN: Parameter = inline(
    "dryRun",
    "With the value All, everything is done and checked except storing the result. Others are refused.",
);
const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "A name for who makes the change: at most 128 printable characters. Default: the first part of the user agent.",
);
const FIELD_MANAGER_APPLY: Parameter = Parameter {
    name: "fieldManager",
    ty: "string",
    description: Cow::Borrowed(
        "A name for who makes the change: at most 128 printable characters. Required for apply patches; for others the \
         default is the first part of the user agent.",
    ),
    in_path: false,
    shared: Some("fieldManager-patch"),
};
const FIELD_VALIDATION: Parameter = inline(
    "fieldValidation",
    "What to do about unknown and duplicate fields: Ignore drops them, Warn (the default) drops them and sends a Warning \
     header for each, Strict refuses the request and names them all.",
);
const FORCE: Parameter =
    query("force", "boolean", "Takes over fields that others own, instead of a conflict. For apply patches only.");
const GRACE_PERIOD: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "Seconds until the object is really deleted; 0 is at once. Default: as the kind has it.",
);
const IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Deletes an object even though it cannot be read from the store, without finalizers or any other check.",
);
const ORPHAN_DEPENDENTS: Parameter = query(
    "orphanDependents",
    "boolean",
    "Deprecated: use propagationPolicy. True keeps what the object owns. Not together with propagationPolicy.",
);
const PROPAGATION_POLICY: Parameter = query(
    "propagationPolicy",
    "string",
    "What happens to what the object owns: Orphan keeps it, Background deletes it afterwards, Foreground before.",
);
pub(super) const NAMESPACE: Parameter = Parameter {
    name: "namespace",
    ty: "string",
    description: Cow::Borrowed("The namespace that the object is in, and that access is checked for."),
    in_path: true,
    shared: Some("namespace"),
};

pub(super) fn name(kind: &str) -> Parameter {
    let description = Cow::Owned(format!("name of the {kind}"));
    Parameter { name: "name", ty: "string", description, in_path: true, shared: None }
}

pub(super) const GET: &[Parameter] = &[RESOURCE_VERSION];
pub(super) const LIST: &[Parameter] = &[
    ALLOW_WATCH_BOOKMARKS,
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
    WATCH,
];
pub(super) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
pub(super) const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER_APPLY, FIELD_VALIDATION, FORCE];
pub(super) const DELETE: &[Parameter] =
    &[DRY_RUN, GRACE_PERIOD, IGNORE_READ_ERROR, ORPHAN_DEPENDENTS, PROPAGATION_POLICY];
pub(super) const DELETE_COLLECTION: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD,
    IGNORE_READ_ERROR,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN_DEPENDENTS,
    PROPAGATION_POLICY,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
];

/// Every parameter that documents share, once.
pub(super) fn shared() -> Vec<Parameter> {
    let mut all: Vec<Parameter> = [&[PRETTY, NAMESPACE], LIST, WRITE, PATCH, DELETE].concat();
    all.retain(|p| p.shared.is_some());
    all.sort_by_key(|p| p.shared);
    all.dedup_by_key(|p| p.shared);
    all
}

impl Parameter {
    fn place(&self) -> &'static str {
        if self.in_path { "path" } else { "query" }
    }

    /// Written out for OpenAPI v2.
    pub(super) fn v2(&self) -> Value {
        let mut value = json!({
            "name": self.name, "in": self.place(), "type": self.ty, "description": self.description, "uniqueItems": true,
        });
        if self.in_path {
            value["required"] = json!(true);
        }
        value
    }

    pub(super) fn v3(&self) -> Value {
        let schema = json!({"type": self.ty, "uniqueItems": true});
        let mut value =
            json!({"name": self.name, "in": self.place(), "description": self.description, "schema": schema});
        if self.in_path {
            value["required"] = json!(true);
        }
        value
    }
}

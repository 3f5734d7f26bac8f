//! A request that is about to change something, as webhooks are told of it.

use croft_meta::{Gvk, Gvr, object};
use serde_json::{Map, Value, json};

use super::hook::Chosen;
use crate::call::{Call, Target};
use crate::options::{DeleteOptions, Propagation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What is asked for, whatever the object is in the end.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    pub(super) call: &'a Call,
    /// As the request names it, subresource included.
    pub(super) target: &'a Target,
    pub(super) operation: Operation,
    /// Of the object that webhooks see.
    pub(crate) kind: Gvk,
    pub(super) name: String,
    pub(super) options: Value,
    pub(super) dry_run: bool,
}

impl<'a> Attributes<'a> {
    /// A creation, of the object or of something below it.
    pub(crate) fn create(call: &'a Call, target: &'a Target, object: &Value, dry_run: bool) -> Self {
        let name = if target.name.is_empty() { object::name(object) } else { &target.name };
        Self {
            name: name.to_owned(),
            ..Self::new(call, target, Operation::Create, write_options(call, "CreateOptions"), dry_run)
        }
    }

    pub(crate) fn update(call: &'a Call, target: &'a Target, dry_run: bool) -> Self {
        Self::new(call, target, Operation::Update, write_options(call, "UpdateOptions"), dry_run)
    }

    pub(crate) fn delete(call: &'a Call, target: &'a Target, options: &DeleteOptions) -> Self {
        Self::new(call, target, Operation::Delete, delete_options(options), options.dry_run)
    }

    /// `options` is what the connection is made with, and all that there is to see.
    pub(crate) fn connect(call: &'a Call, target: &'a Target, options: &Value) -> Self {
        let attributes = Self::new(call, target, Operation::Connect, Value::Null, false);
        Self { kind: object::gvk(options), ..attributes }
    }

    fn new(call: &'a Call, target: &'a Target, operation: Operation, options: Value, dry_run: bool) -> Self {
        let below = target.served.version().subresources.iter().find(|below| below.name == target.subresource);
        let kind = below.map_or_else(|| target.gvk(), |below| below.kind.clone());
        Self { call, target, operation, kind, name: target.name.clone(), options, dry_run }
    }

    /// A namespace is in itself, as upstream has it.
    pub(super) fn namespace(&self) -> &str {
        if self.is_namespace() { &self.name } else { &self.target.namespace }
    }

    pub(super) fn is_namespace(&self) -> bool {
        self.target.group().is_empty() && self.target.plural() == "namespaces"
    }

    /// The request of a review but for its uid and the objects, which conditions see as `request`.
    pub(super) fn request(&self, chosen: &Chosen) -> Map<String, Value> {
        let kind = chosen.kind.as_ref().unwrap_or(&self.kind);
        let own = self.target.served.resource.gvr(&self.target.served.version().name);
        let user = &self.call.user;
        let mut user_info = Map::new();
        user_info.insert("username".to_owned(), json!(user.name));
        let filled = [("uid", json!(user.uid)), ("groups", json!(user.groups)), ("extra", json!(user.extra))];
        user_info.extend(
            filled.into_iter().filter(|(_, value)| !is_blank(value)).map(|(key, value)| (key.to_owned(), value)),
        );
        let fields = [
            ("kind", kind_json(kind)),
            ("resource", resource_json(&chosen.resource)),
            ("subResource", json!(self.target.subresource)),
            ("requestKind", kind_json(&self.kind)),
            ("requestResource", resource_json(&own)),
            ("requestSubResource", json!(self.target.subresource)),
            ("name", json!(self.name)),
            ("namespace", json!(self.namespace())),
            ("operation", json!(self.operation.name())),
            ("userInfo", Value::Object(user_info)),
            ("dryRun", json!(self.dry_run)),
        ];
        let fields = fields.into_iter().filter(|(_, value)| !is_blank(value));
        let options = [("options", self.options.clone())];
        fields.chain(options).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// What Go leaves out.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn kind_json(kind: &Gvk) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

fn resource_json(resource: &Gvr) -> Value {
    json!({ "group": resource.group, "version": resource.version, "resource": resource.resource })
}

/// The options as the client gave them. A patch is told as what it does.
fn write_options(call: &Call, kind: &str) -> Value {
    let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
    let dry_run: Vec<&str> = call.query.all("dryRun").collect();
    if !dry_run.is_empty() {
        options["dryRun"] = json!(dry_run);
    }
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(value) = call.query.get(field).filter(|value| !value.is_empty()) {
            options[field] = json!(value);
        }
    }
    options
}

fn delete_options(options: &DeleteOptions) -> Value {
    let mut told = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
    if options.dry_run {
        told["dryRun"] = json!(["All"]);
    }
    if let Some(seconds) = options.grace_period_seconds {
        told["gracePeriodSeconds"] = json!(seconds);
    }
    if let Some(policy) = options.propagation {
        told["propagationPolicy"] = json!(match policy {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        });
    }
    if let Some(uid) = &options.precondition_uid {
        told["preconditions"]["uid"] = json!(uid);
    }
    if let Some(version) = &options.precondition_resource_version {
        told["preconditions"]["resourceVersion"] = json!(version);
    }
    told
}

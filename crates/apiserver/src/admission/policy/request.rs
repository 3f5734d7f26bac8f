//! A request as policies see it.

use std::cell::OnceCell;

use croft_api::Resource;
use croft_meta::{Gvk, Gvr, object};
use serde_json::{Value, json};

use super::matching::name_of;
use crate::admission::authorizer::Caller;
use crate::call::{Call, Target};
use crate::verbs::scale;
use crate::webhooks::Operation;
use crate::write;

static NULL: Value = Value::Null;

pub(super) struct Request<'a> {
    pub(super) call: &'a Call,
    pub(super) target: &'a Target,
    pub(super) operation: Operation,
    pub(super) subresource: &'a str,
    /// What was sent; null for a deletion.
    pub(super) object: &'a Value,
    /// What is stored; null for a creation.
    pub(super) old: &'a Value,
    /// The kind of what was sent, if that is neither the object nor its scale: a binding, the options of a connection.
    sent: Option<Gvk>,
    dry_run: bool,
    namespace: OnceCell<Value>,
}

/// A group and version under which objects are served, and may be meant and shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'a> {
    pub(super) resource: &'a Resource,
    pub(super) version: &'a str,
}

impl Form<'_> {
    fn gvr(self) -> Gvr {
        self.resource.gvr(self.version)
    }

    pub(super) fn gvk(self) -> Gvk {
        self.resource.gvk(self.version)
    }

    /// Whether what is shown in the other form is the same.
    pub(super) fn is(self, other: Form<'_>) -> bool {
        std::ptr::eq(self.resource, other.resource) && self.version == other.version
    }
}

/// What is written through: a scale is stored as the object itself, but it is not what the client sent.
pub(super) fn subresource<'a>(call: &'a Call, target: &'a Target) -> &'a str {
    let is_scale = call.info.subresource == "scale" && call.info.resource == target.plural();
    if is_scale { "scale" } else { &target.subresource }
}

impl<'a> Request<'a> {
    pub(super) fn new(
        call: &'a Call,
        target: &'a Target,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
        dry_run: bool,
    ) -> Self {
        let operation = match (new, old) {
            (None, _) => Operation::Delete,
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
        };
        let (object, old) = (new.unwrap_or(&NULL), old.unwrap_or(&NULL));
        let (subresource, namespace) = (subresource(call, target), OnceCell::new());
        Self { call, target, operation, subresource, object, old, sent: None, dry_run, namespace }
    }

    /// About something that is sent and not stored as such. It says itself of which kind it is.
    pub(super) fn sent(
        call: &'a Call,
        target: &'a Target,
        operation: Operation,
        object: &'a Value,
        dry_run: bool,
    ) -> Self {
        Self { operation, sent: Some(object::gvk(object)), ..Self::new(call, target, Some(object), None, dry_run) }
    }

    /// The kind of what is sent, if it is not stored as such.
    pub(super) fn sent_kind(&self) -> Option<&Gvk> {
        self.sent.as_ref()
    }

    /// Who asks, for expressions that want to know what they may do.
    pub(super) fn caller(&self) -> Caller<'_> {
        let Self { call, target, subresource, .. } = self;
        Caller { call, target, subresource, namespace: self.namespace(), name: self.name() }
    }

    /// A namespace is in itself, as upstream has it.
    fn namespace(&self) -> &str {
        if self.is_namespace() { self.name() } else { &self.target.namespace }
    }

    /// As the request names it.
    pub(super) fn own_form(&self) -> Form<'a> {
        let served = &self.target.served;
        Form { resource: &served.resource, version: &served.version().name }
    }

    /// The other groups and versions under which the same objects are served.
    pub(super) fn other_forms(&self) -> impl Iterator<Item = Form<'a>> {
        let (own, key) = (self.own_form().gvr(), self.target.storage_key());
        let same = self.call.catalog.resources().iter().filter(move |resource| resource.storage_key == key);
        let all = same.flat_map(|resource| {
            resource.versions.iter().map(move |version| Form { resource, version: &version.name })
        });
        all.filter(move |form| form.gvr() != own)
    }

    pub(super) fn name(&self) -> &'a str {
        let object = if self.object.is_null() { self.old } else { self.object };
        name_of(&self.target.name, object)
    }

    pub(super) fn is_namespace(&self) -> bool {
        self.target.group().is_empty() && self.target.plural() == "namespaces"
    }

    /// The namespace that it is in; null if it is in none.
    pub(super) fn namespace_object(&self) -> &Value {
        self.namespace.get_or_init(|| {
            let namespaces = self.call.server.cache.collection("core/namespaces");
            let is_in_one = !self.target.namespace.is_empty() && !self.is_namespace();
            is_in_one
                .then(|| namespaces.get(&self.target.namespace))
                .flatten()
                .map(|found| found.json())
                .unwrap_or_default()
        })
    }

    /// Why the object cannot be seen in a version. A write is decided in an instant, which is too short for a webhook.
    pub(super) fn cannot_show(&self, form: Form<'_>) -> Option<String> {
        let (version, own) = (form.version, self.own_form());
        let is_converted = version != own.version && self.target.served.conversion.is_some();
        is_converted.then(|| {
            let kind = own.gvk();
            format!("a webhook converts {kind} to {version:?}; rules must name the version of the request as well")
        })
    }

    /// An object in one of its forms, or the scale of it, if that is what is written.
    pub(super) fn shown(&self, object: &Value, form: Form<'_>) -> Value {
        if object.is_null() {
            return Value::Null;
        }
        if self.subresource == "scale" {
            return scale::shown(self.target, object).unwrap_or_default();
        }
        let mut shown = object.clone();
        if self.sent.is_some() {
            return shown;
        }
        write::convert(&mut shown, self.target, &form.gvk());
        shown
    }

    /// `request`, an AdmissionRequest.
    pub(super) fn to_json(&self, form: Form<'_>) -> Value {
        let kind = |form: Form<'_>| {
            let gvk = match (&self.sent, self.subresource) {
                (Some(sent), _) => sent.clone(),
                (None, "scale") => Gvk::new("autoscaling", "v1", "Scale"),
                (None, _) => form.gvk(),
            };
            json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
        };
        let resource = |form: Form<'_>| {
            let gvr = form.gvr();
            json!({"group": gvr.group, "version": gvr.version, "resource": gvr.resource})
        };
        let own = self.own_form();
        let user = &self.call.user;
        let mut user_info = json!({"username": user.name, "groups": user.groups});
        if !user.uid.is_empty() {
            user_info["uid"] = json!(user.uid);
        }
        if !user.extra.is_empty() {
            user_info["extra"] = json!(user.extra);
        }
        let mut request = json!({
            "kind": kind(form), "resource": resource(form),
            "requestKind": kind(own), "requestResource": resource(own),
            "operation": self.operation.name(), "userInfo": user_info, "dryRun": self.dry_run, "options": self.options(),
        });
        let texts = [
            ("name", self.name()),
            ("namespace", self.namespace()),
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
        ];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            request[field] = json!(text);
        }
        request
    }

    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            // A patch is told as what it does.
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            // What a connection is made with is the object.
            Operation::Connect => return Value::Null,
        };
        let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        for field in ["fieldManager", "fieldValidation", "propagationPolicy"] {
            if let Some(text) = self.call.query.get(field) {
                options[field] = json!(text);
            }
        }
        options
    }
}

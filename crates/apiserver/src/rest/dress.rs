//! What Steve adds to an object: its id and type, links, the actions that can be used, a state and the printed columns.
//!
//! Lists add it to the bytes that the cache holds, without building the object: they are long, and nearly as fast as the
//! Kubernetes API's.

use std::collections::HashMap;
use std::sync::Arc;

use croft_meta::{ApiError, object};
use serde_json::{Map, Value, json};

use super::actions;
use super::schema::Schema;
use super::state::Look;
use crate::cache::{Change, Object};
use crate::call::{Call, Target, id};
use crate::clock;
use crate::conversion;
use crate::encoding::Head;
use crate::server::ApiServer;
use crate::table::Printer;
use crate::user::UserInfo;
use crate::write::{in_version, is_served_as_stored, storage_gvk};

const METADATA: &[u8] = b"\"metadata\":{";
/// Steve's own fields. An object's field of such a name is written with an underscore before it.
const RESERVED: [&str; 4] = ["id", "type", "links", "actions"];

/// What the caller may do with the objects of one namespace.
#[derive(Clone, Copy, Debug)]
struct Rights {
    update: bool,
    delete: bool,
}

/// For the objects of one kind, in one request.
#[derive(Debug)]
pub(super) struct Dresser {
    server: Arc<ApiServer>,
    user: UserInfo,
    pub(super) schema: Schema,
    target: Target,
    base: String,
    /// `https://host/v1/harvester/<plural id>`
    collection: String,
    /// `https://host/apis/<group>/<version>`
    view: String,
    head: Head,
    rights: HashMap<String, Rights>,
    /// The stored bytes can be used as they are.
    is_plain: bool,
    printer: Printer,
    pub(super) with_managed_fields: bool,
}

impl Dresser {
    pub(super) fn new(call: &Call, root: &str, schema: &Schema) -> Self {
        let target = schema.target("", "");
        let base = super::reply::base(call);
        let has_reserved = schema.is("", "secrets") || schema.served.plural() == "events";
        let excluded = |field: &str| call.query.all("exclude").any(|excluded| excluded == field);
        Self {
            collection: format!("{base}{root}/{}", schema.plural_id),
            view: format!("{base}{}", schema.kubernetes_root()),
            base,
            head: Head::new(
                &storage_gvk(&target).api_version(),
                Some(&target.gvk().api_version()),
                target.served.kind(),
            ),
            rights: HashMap::new(),
            is_plain: is_served_as_stored(&target) && !has_reserved,
            printer: Printer::new(&schema.served),
            with_managed_fields: !excluded("metadata.managedFields"),
            server: Arc::clone(&call.server),
            user: call.user.clone(),
            schema: schema.clone(),
            target,
        }
    }

    /// Changes with their objects in the version that is shown.
    pub(super) async fn converted(&self, changes: Vec<Arc<Change>>) -> Result<Vec<Arc<Change>>, ApiError> {
        conversion::changes(&self.server, &self.target, changes).await
    }

    /// Appends the object, dressed.
    pub(super) fn write(&mut self, stored: &Object, out: &mut Vec<u8>) {
        if !self.is_plain || !self.write_spliced(stored, out) {
            let dressed = self.value(in_version(stored, &self.target));
            // Memory takes any value.
            let _ = serde_json::to_writer(out, &dressed);
        }
    }

    /// Says whether it could be done.
    fn write_spliced(&mut self, stored: &Object, out: &mut Vec<u8>) -> bool {
        let rights = self.rights(stored.namespace());
        let look = Look::of(&stored.bytes);
        let (head, rest) = self.head.pieces(&stored.bytes);
        let (Some(head), Some(rest)) = (head.strip_prefix(b"{"), rest.strip_prefix(METADATA)) else { return false };
        out.push(b'{');
        self.splice_extra(rights, stored.namespace(), stored.name(), &look, out);
        out.extend_from_slice(head);
        out.extend_from_slice(METADATA);
        out.extend_from_slice(b"\"relationships\":[],\"fields\":");
        let cells = self.printer.cells_of(&stored.bytes, clock::now_seconds());
        // Memory takes any value.
        let _ = serde_json::to_writer(&mut *out, &cells);
        out.extend_from_slice(b",\"state\":");
        look.state().write(out);
        out.push(b',');
        match look.metadata.managed_fields.filter(|_| !self.with_managed_fields) {
            Some(managed) => write_without(out, rest, "managedFields", managed.get()),
            None => out.extend_from_slice(rest),
        }
        true
    }

    /// What [`Self::extra`] says, as text.
    fn splice_extra(&self, rights: Rights, namespace: &str, name: &str, look: &Look<'_>, out: &mut Vec<u8>) {
        let id = id(namespace, name);
        let this = [self.collection.as_str(), "/", &id];
        let link = |out: &mut Vec<u8>, before: &str, name: &str, parts: &[&str]| {
            out.extend_from_slice(before.as_bytes());
            quoted(out, &[name]);
            out.push(b':');
            quoted(out, parts);
        };
        link(out, "", "id", &[&id]);
        link(out, ",", "type", &[&self.schema.id]);
        link(out, ",\"links\":{", "self", &this);
        let scope = if namespace.is_empty() { "" } else { "/namespaces/" };
        let view = [self.view.as_str(), scope, namespace, "/", self.schema.served.plural(), "/", name];
        link(out, ",", "view", &view);
        if rights.update {
            link(out, ",", "update", &this);
        }
        if rights.delete {
            link(out, ",", "remove", &this);
        }
        for name in actions::links(&self.schema, look) {
            link(out, ",", name, &[this[0], "/", this[2], "/", name]);
        }
        out.extend_from_slice(b"},\"actions\":{");
        if rights.update {
            let mut before = "";
            for action in actions::offered(&self.server.cache, &self.schema, &id, look) {
                link(out, before, action, &[this[0], "/", this[2], "?action=", action]);
                before = ",";
            }
        }
        out.extend_from_slice(b"},");
    }

    /// The same for an object that is at hand.
    pub(super) fn value(&mut self, mut value: Value) -> Value {
        let text = value.to_string();
        let look = Look::of(text.as_bytes());
        let (namespace, name) = (object::namespace(&value).to_owned(), object::name(&value).to_owned());
        let extra = self.extra(&namespace, &name, &look);
        let cells = self.printer.cells(&value, clock::now_seconds());
        let metadata = object::metadata_mut(&mut value);
        metadata.insert("state".to_owned(), look.state().to_json());
        metadata.insert("relationships".to_owned(), json!([]));
        metadata.insert("fields".to_owned(), cells.into());
        if !self.with_managed_fields {
            metadata.remove("managedFields");
        }
        let fields = match value {
            Value::Object(fields) => fields,
            other => return other,
        };
        let mut dressed: Map<String, Value> = fields
            .into_iter()
            .map(
                |(name, value)| {
                    if RESERVED.contains(&name.as_str()) { (format!("_{name}"), value) } else { (name, value) }
                },
            )
            .collect();
        dressed.extend(extra.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(dressed)
    }

    fn extra(&mut self, namespace: &str, name: &str, look: &Look<'_>) -> [(&'static str, Value); 4] {
        let rights = self.rights(namespace);
        let id = id(namespace, name);
        let this = format!("{}/{id}", self.collection);
        let view = format!("{}{}", self.base, self.schema.kubernetes_path(namespace, name));
        let mut links = json!({ "self": this, "view": view });
        if rights.update {
            links["update"] = json!(this);
        }
        if rights.delete {
            links["remove"] = json!(this);
        }
        for link in actions::links(&self.schema, look) {
            links[link] = json!(format!("{this}/{link}"));
        }
        let mut actions = Map::new();
        if rights.update {
            for action in actions::offered(&self.server.cache, &self.schema, &id, look) {
                actions.insert(action.to_owned(), json!(format!("{this}?action={action}")));
            }
        }
        [("id", json!(id)), ("type", json!(self.schema.id)), ("links", links), ("actions", actions.into())]
    }

    fn rights(&mut self, namespace: &str) -> Rights {
        if let Some(rights) = self.rights.get(namespace) {
            return *rights;
        }
        let may = |verb: &str| {
            let wanted = self.schema.attributes(verb, namespace, "");
            self.schema.served.resource.verbs.contains(&verb)
                && self.server.auth.rbac.authorize(&self.user, &wanted).allowed
        };
        let rights = Rights { update: may("update"), delete: may("delete") };
        self.rights.insert(namespace.to_owned(), rights);
        rights
    }
}

/// A text of JSON, in pieces that nearly always need no escaping.
pub(super) fn quoted(out: &mut Vec<u8>, parts: &[&str]) {
    out.push(b'"');
    for part in parts {
        if part.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            out.extend_from_slice(part.as_bytes());
            continue;
        }
        let escaped = Value::from(*part).to_string();
        // Without the quotes around it.
        out.extend_from_slice(escaped.get(1..escaped.len() - 1).unwrap_or_default().as_bytes());
    }
    out.push(b'"');
}

/// `text` without one of its members, whose value is the slice `value` of it.
fn write_without(out: &mut Vec<u8>, text: &[u8], name: &str, value: &str) {
    let at = (value.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    // `"name":` stands before the value, and a comma after it or before it.
    let start = at.checked_sub(name.len() + 3);
    let end = at.wrapping_add(value.len());
    let (Some(start), Some(after)) = (start, text.get(end..)) else { return out.extend_from_slice(text) };
    let (before, after) = match (text[..start].strip_suffix(b","), after.strip_prefix(b",")) {
        (_, Some(after)) => (&text[..start], after),
        (Some(before), None) => (before, after),
        (None, None) => (&text[..start], after),
    };
    out.extend_from_slice(before);
    out.extend_from_slice(after);
}

/// What a client sent, without what was added for it.
pub(super) fn undressed(mut object: Value, schema: &Schema) -> Value {
    let Some(fields) = object.as_object_mut() else { return object };
    for name in ["id", "links", "actions"] {
        fields.remove(name);
    }
    // A Secret has a type of its own; who knows Steve sends it with an underscore, who knows Kubernetes without.
    let own = fields.remove("_type");
    let is_steves = fields.get("type").is_some_and(|ty| *ty == schema.id || *ty == schema.plural_id);
    if own.is_some() || is_steves {
        fields.remove("type");
    }
    if let Some(own) = own {
        fields.insert("type".to_owned(), own);
    }
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["state", "relationships", "fields"] {
            metadata.remove(name);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_where_they_must_be() {
        let mut out = Vec::new();
        quoted(&mut out, &["a", "\"b\"", "\\", "ö\n"]);
        let read: String = serde_json::from_slice(&out).unwrap();
        assert_eq!(read, "a\"b\"\\ö\n");
    }

    #[test]
    fn a_member_is_left_out() {
        for (text, expected) in [
            (r#""a":1,"managedFields":[{"x":2}],"b":3}"#, r#""a":1,"b":3}"#),
            (r#""a":1,"managedFields":[]}"#, r#""a":1}"#),
            (r#""managedFields":[]}"#, r"}"),
        ] {
            let at = text.find('[').unwrap();
            let value = &text[at..=text.find(']').unwrap()];
            let mut out = Vec::new();
            write_without(&mut out, text.as_bytes(), "managedFields", value);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}

//! `metadata.managedFields`: reading, writing and capping the list of managers.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::fieldpath::Set;

/// At most this many managers that update are told apart; the oldest beyond that become one.
const MAX_UPDATE_MANAGERS: usize = 10;
const ANCIENT_CHANGES: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One manager and what it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: Set,
}

/// All managers of an object; each identity occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers(pub(crate) Vec<Manager>);

impl Manager {
    /// Whether both are the same manager. One that applies stays the same across API versions.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The order of identities.
    pub(crate) fn identity(&self) -> (&str, Operation, &str, &str) {
        let version = if self.operation == Operation::Apply { "" } else { self.api_version.as_str() };
        (&self.name, self.operation, version, &self.subresource)
    }

    fn decode(entry: &Value, index: usize) -> Result<Self, String> {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => {
                let other = croft_meta::field::go_quote(other);
                return Err(format!("invalid fieldsType {other} in managed fields entry {index}"));
            }
        }
        let fields = match entry.get("fieldsV1") {
            None | Some(Value::Null) => Set::new(),
            Some(fields) => Set::from_fields_v1(fields).map_err(|e| format!("error decoding set: {e}"))?,
        };
        Ok(Self {
            name: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            fields,
        })
    }

    fn encode(&self) -> Value {
        let mut entry = Map::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                entry.insert(name.to_owned(), value.into());
            }
        };
        put("apiVersion", &self.api_version);
        put("fieldsType", "FieldsV1");
        put("manager", &self.name);
        put("operation", self.operation.as_str());
        put("subresource", &self.subresource);
        put("time", self.time.as_deref().unwrap_or_default());
        entry.insert("fieldsV1".to_owned(), self.fields.to_fields_v1());
        Value::Object(entry)
    }
}

/// Times sort by whole seconds; RFC 3339 in UTC sorts as text. A missing time is the oldest.
fn by_time(a: &Manager, b: &Manager) -> Ordering {
    let seconds = |m: &'_ Manager| m.time.as_deref().map(|t| t.get(..19).unwrap_or(t).to_owned());
    seconds(a).cmp(&seconds(b))
}

impl Managers {
    /// Reads the list; what is no list, or absent, is empty.
    pub(crate) fn decode(entries: Option<&Value>) -> Result<Self, String> {
        let mut managers = Self::default();
        for (index, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let manager = Manager::decode(entry, index)?;
            managers.put(manager);
        }
        Ok(managers)
    }

    /// The list in its order; `None` if there is nothing to write.
    pub(crate) fn encode(mut self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by(|a, b| {
            let by_identity =
                || (&a.name, &a.api_version, &a.subresource).cmp(&(&b.name, &b.api_version, &b.subresource));
            a.operation.cmp(&b.operation).then_with(|| by_time(a, b)).then_with(by_identity)
        });
        Some(self.0.iter().map(Manager::encode).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, manager: &Manager) -> Option<usize> {
        self.0.iter().position(|m| m.is(manager))
    }

    /// Adds a manager, or replaces it.
    pub(crate) fn put(&mut self, manager: Manager) {
        match self.position(&manager) {
            Some(at) => self.0[at] = manager,
            None => self.0.push(manager),
        }
    }

    /// Takes a manager out.
    pub(crate) fn take(&mut self, manager: &Manager) -> Option<Manager> {
        self.position(manager).map(|at| self.0.remove(at))
    }

    pub(crate) fn drop_empty(&mut self) {
        self.0.retain(|manager| !manager.fields.is_empty());
    }

    /// Merges the oldest managers that update, per API version, until few enough are left.
    pub(crate) fn cap_updates(&mut self) {
        let is_update = |m: &Manager| m.operation == Operation::Update;
        let mut excess = self.0.iter().filter(|m| is_update(m)).count().saturating_sub(MAX_UPDATE_MANAGERS);
        if excess == 0 {
            return;
        }
        let mut updates: Vec<Manager> = self.0.iter().filter(|m| is_update(m)).cloned().collect();
        updates.sort_by(|a, b| by_time(a, b).then_with(|| a.identity().cmp(&b.identity())));

        // The first of a version is kept as it is until there is a second one to merge it with.
        let mut firsts: Vec<Manager> = Vec::new();
        for manager in updates {
            if excess == 0 {
                break;
            }
            let bucket = Manager {
                name: ANCIENT_CHANGES.to_owned(),
                subresource: String::new(),
                fields: Set::new(),
                ..manager.clone()
            };
            let Some(first) = firsts.iter().find(|f| f.api_version == manager.api_version) else {
                firsts.push(manager);
                continue;
            };
            let mut merged = match self.take(&bucket) {
                Some(existing) => existing.fields,
                None => self.take(first).map(|f| f.fields).unwrap_or_default(),
            };
            self.take(&manager);
            merged.absorb(manager.fields);
            self.put(Manager { fields: merged, ..bucket });
            excess -= 1;
        }
    }
}

/// Whether a client asks to forget all managers: by a list of one empty entry or, for built-in kinds, an empty list.
/// Custom resources lose an empty list when upstream decodes their metadata.
pub(crate) fn is_reset(entries: Option<&Value>, built_in: bool) -> bool {
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => built_in,
        Some([Value::Object(entry)]) => entry.values().all(|v| v.is_null() || v.as_str() == Some("")),
        _ => false,
    }
}

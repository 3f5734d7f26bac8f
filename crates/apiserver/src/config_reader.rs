//! Reads files of configuration strictly: what is not known, or is of another kind, is a mistake that is named by its path.

use croft_meta::field::FieldErrors;
use croft_meta::{FieldError, FieldPath};
use serde_json::{Map, Value};

/// Goes on after a mistake, so that all of them are told at once.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) errors: FieldErrors,
}

impl Reader {
    pub(crate) fn fields<'a>(
        &mut self,
        path: &FieldPath,
        value: &'a Value,
        known: &[&str],
    ) -> Option<&'a Map<String, Value>> {
        let Some(fields) = value.as_object() else {
            self.errors.push(FieldError::invalid(path, value.clone(), "must be an object"));
            return None;
        };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            self.errors.push(FieldError::forbidden(&path.child(name), "there is no such field"));
        }
        Some(fields)
    }

    pub(crate) fn list(&mut self, path: &FieldPath, value: Option<&Value>) -> Vec<Value> {
        match value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.clone(),
            Some(other) => {
                self.errors.push(FieldError::invalid(path, other.clone(), "must be a list"));
                Vec::new()
            }
        }
    }

    pub(crate) fn texts(&mut self, path: &FieldPath, fields: &Map<String, Value>, name: &str) -> Vec<String> {
        let path = path.child(name);
        let list = self.list(&path, fields.get(name));
        list.iter().enumerate().map(|(at, value)| self.text(&path.index(at), Some(value))).collect()
    }

    pub(crate) fn text(&mut self, path: &FieldPath, value: Option<&Value>) -> String {
        match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => {
                self.errors.push(FieldError::invalid(path, other.clone(), "must be a string"));
                String::new()
            }
        }
    }

    pub(crate) fn flag(&mut self, path: &FieldPath, fields: &Map<String, Value>, name: &str) -> Option<bool> {
        let value = fields.get(name).filter(|value| !value.is_null())?;
        if !value.is_boolean() {
            self.errors.push(FieldError::invalid(&path.child(name), value.clone(), "must be true or false"));
        }
        value.as_bool()
    }
}

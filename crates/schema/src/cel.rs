//! CEL rules (`x-kubernetes-validations`): compiled once per schema, evaluated on every write.
//!
//! The language and Kubernetes' functions come from kube-cel; which value a rule sees, which old
//! value it is compared with, and the texts of its errors follow apiextensions-apiserver.
//!
//! Rules come from users: they are checked for shapes that nothing can take, and evaluated as the expressions of policies
//! are (`crate::expression`), which counts the work that one request causes.

mod check;
mod evaluate;
mod field_path;
mod macros;
mod stack;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::Value;

pub(crate) use self::field_path::normalise as normalise_field_path;
pub(crate) use self::stack::with_room;
pub use self::value::RESERVED_WORDS;
pub(crate) use self::value::{CONTEXT, TYPES};
use crate::expression::Expression;
use crate::model::{Additional, ListType, Schema};

/// All rules of a schema.
#[derive(Debug)]
pub struct CelRules {
    root: Option<Node>,
}

/// The rules at one place of the schema, and below it.
#[derive(Debug)]
struct Node {
    schema: Arc<Schema>,
    rules: Vec<Rule>,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

#[derive(Debug)]
struct Rule {
    text: String,
    program: Expression,
    message: String,
    message_program: Option<Expression>,
    /// Appended to the path of the node.
    field_path: String,
    reason: String,
    uses_old_self: bool,
    optional_old_self: bool,
}

impl CelRules {
    /// Compiles every rule. `path` is where the schema stands in its CustomResourceDefinition.
    pub fn compile(schema: &Schema, path: &FieldPath) -> Result<Self, FieldErrors> {
        if !has_rules(schema) {
            return Ok(Self { root: None });
        }
        let compile = || {
            let mut errors = Vec::new();
            let root = compile_node(&Arc::new(schema.clone()), path, None, true, &mut errors);
            (root, errors)
        };
        let (root, errors) = stack::with_room(compile).map_err(|err| vec![internal_error(path, &err)])?;
        if errors.is_empty() { Ok(Self { root }) } else { Err(errors) }
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// What the rules say about an object, and about its change if there was one.
    pub fn evaluate(&self, new: &Value, old: Option<&Value>) -> FieldErrors {
        self.evaluate_at(&FieldPath::root(), new, old)
    }

    /// The same for a value that stands at `path`.
    pub(crate) fn evaluate_at(&self, path: &FieldPath, new: &Value, old: Option<&Value>) -> FieldErrors {
        self.root.as_ref().map_or_else(Vec::new, |root| evaluate::run(root, path, new, old))
    }

    /// Rules are not run on an object whose shape is already known to be wrong; upstream says so with this error.
    pub fn skipped_because_of(errors: &FieldErrors) -> Option<FieldError> {
        use croft_meta::field::FieldErrorKind as Kind;
        let blocks = |kind| {
            matches!(kind, Kind::NotSupported | Kind::Required | Kind::TooLong | Kind::TooMany | Kind::TypeInvalid)
        };
        let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                      errors to complete validation";
        let blocked = errors.iter().any(|error| blocks(error.kind));
        blocked.then(|| FieldError::invalid(&FieldPath::root(), Value::Null, detail))
    }
}

fn internal_error(path: &FieldPath, err: &std::io::Error) -> FieldError {
    let kind = croft_meta::field::FieldErrorKind::InternalError;
    FieldError { kind, field: path.clone(), value: Value::Null, detail: err.to_string() }
}

fn has_rules(schema: &Schema) -> bool {
    let additional = match &schema.additional {
        Additional::Schema(values) => has_rules(values),
        Additional::None => false,
    };
    schema.rules.is_some()
        || additional
        || schema.items.as_deref().is_some_and(has_rules)
        || schema.properties.values().any(|property| has_rules(property))
}

/// `uncorrelatable` is the list below which no old value can be found.
fn compile_node(
    schema: &Arc<Schema>,
    path: &FieldPath,
    uncorrelatable: Option<&FieldPath>,
    is_resource: bool,
    errors: &mut FieldErrors,
) -> Option<Node> {
    let mut properties = BTreeMap::new();
    for (name, property) in &schema.properties {
        let at = path.child("properties").key(name);
        if let Some(node) = compile_node(property, &at, uncorrelatable, false, errors) {
            properties.insert(name.clone(), node);
        }
    }
    let additional = match &schema.additional {
        Additional::Schema(values) => {
            compile_node(values, &path.child("additionalProperties"), uncorrelatable, false, errors)
        }
        Additional::None => None,
    };
    let is_map = matches!(schema.list_type, ListType::Map(_));
    let below = uncorrelatable.or(Some(path).filter(|_| !is_map));
    let items = schema.items.as_ref().and_then(|items| compile_node(items, &path.child("items"), below, false, errors));
    let mut rules = Vec::new();
    for (index, json) in schema.rules.as_ref().and_then(Value::as_array).into_iter().flatten().enumerate() {
        let at = path.child("x-kubernetes-validations").index(index);
        match Rule::compile(json, schema, &at, uncorrelatable, is_resource) {
            Ok(rule) => rules.push(rule),
            Err(found) => errors.extend(found),
        }
    }
    let empty = rules.is_empty() && properties.is_empty() && additional.is_none() && items.is_none();
    (!empty).then(|| Node {
        schema: Arc::clone(schema),
        rules,
        properties,
        additional: additional.map(Box::new),
        items: items.map(Box::new),
    })
}

impl Rule {
    fn compile(
        json: &Value,
        schema: &Schema,
        path: &FieldPath,
        uncorrelatable: Option<&FieldPath>,
        is_resource: bool,
    ) -> Result<Self, FieldErrors> {
        let text = |name: &str| json[name].as_str().unwrap_or_default().trim().to_owned();
        let invalid = |at: &str, detail: String| FieldError::invalid(&path.child(at), as_internal(json), detail);
        let (source, message_source) = (text("rule"), text("messageExpression"));
        let optional_old_self = json["optionalOldSelf"] == Value::Bool(true);
        let mut errors = Vec::new();

        let compiled = check::compile(&source, schema, check::Wants::Bool, optional_old_self, is_resource);
        let compiled = compiled.map_err(|why| errors.push(invalid("rule", why))).ok();
        let message = (!message_source.is_empty())
            .then(|| check::compile(&message_source, schema, check::Wants::String, optional_old_self, is_resource));
        let message = message.and_then(|m| m.map_err(|why| errors.push(invalid("messageExpression", why))).ok());
        let uses_old_self = compiled.as_ref().is_some_and(|checked| checked.uses_old_self);
        if let (true, Some(list)) = (uses_old_self, uncorrelatable) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            errors.push(FieldError::invalid(&path.child("rule"), source.as_str(), detail));
        }
        if !uses_old_self && compiled.is_some() && json["optionalOldSelf"].is_boolean() {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(&path.child("optionalOldSelf"), json["optionalOldSelf"].clone(), detail));
        }
        let Some(compiled) = compiled.filter(|_| errors.is_empty()) else { return Err(errors) };
        Ok(Self {
            text: source,
            program: compiled.program,
            message: text("message"),
            message_program: message.map(|checked| checked.program),
            field_path: normalise_field_path(schema, &text("fieldPath")).unwrap_or_default(),
            reason: text("reason"),
            uses_old_self,
            optional_old_self,
        })
    }

    /// How errors call the rule.
    fn name(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }

    fn failure(&self, path: &FieldPath, type_name: &str, detail: String) -> FieldError {
        match self.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(path, detail),
            "FieldValueRequired" => FieldError::required(path, detail),
            "FieldValueDuplicate" => FieldError::duplicate(path, type_name),
            _ => FieldError::invalid(path, type_name, detail),
        }
    }
}

/// Upstream quotes its internal form of a rule, whose field names start with capitals.
fn as_internal(rule: &Value) -> Value {
    let text = |name: &str| rule[name].as_str().unwrap_or_default();
    serde_json::json!({
        "Rule": text("rule"), "Message": text("message"), "MessageExpression": text("messageExpression"),
        "Reason": rule["reason"], "FieldPath": text("fieldPath"), "OptionalOldSelf": rule["optionalOldSelf"],
    })
}

#[cfg(test)]
mod tests;

//! Definitions as text: `definitions/<group>.txt`, one line a field.
//!
//! Many kinds are only kept for the clients that write and read them. A table of their fields is shorter than structs
//! that nobody would use, and can be compared with a reference at a glance:
//!
//! ```text
//! group example.com
//!
//! type Place                       a shape with a name, for this file
//!  host*: string
//!
//! kind Box boxes namespaced v1,v1beta1! status short=bx
//!  idle no box is packed           nothing in Croft acts on the kind; said in a warning
//!  told {"conditions":["Packed"]}  and in the status of new objects, see [`super::told`]
//!  column Size: integer .spec.size priority=1
//!  spec*:
//!   size*: int >=1 <=10 =3
//!   mode: string enum(a|b) =a
//!   places: []Place items<=4
//!   labels: {}string
//!   lids: []
//!    color: string len<=9
//!   owner: string fixed            cannot be changed
//!   rule self.size > 1 :: too small
//!  version v1beta1                 a version whose columns and fields are others
//! ```
//!
//! Depth is one space. `*` marks what is required; what is not may be `null` unless it has a default, as in
//! [`super::schema`]. Of the versions the first is stored, and those with `!` are deprecated.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::facts::{Column, Facts, VersionFacts};
use super::shapes;
use crate::resource::Scope;

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct NotationError {
    line: usize,
    problem: String,
}

/// A line with what is below it.
struct Node<'a> {
    line: usize,
    text: &'a str,
    below: Vec<Node<'a>>,
}

impl Node<'_> {
    fn error(&self, problem: impl Into<String>) -> NotationError {
        NotationError { line: self.line, problem: problem.into() }
    }
}

/// The kinds of one file. Shapes that the notation itself knows are made once for all files: some are large.
pub(crate) fn read(text: &'static str, common: &mut HashMap<&'static str, Value>) -> Result<Vec<Facts>, NotationError> {
    let mut group = "";
    let mut shapes = Shapes { named: HashMap::new(), common };
    let mut kinds = Vec::new();
    for node in tree(text)? {
        match node.text.split_once(' ') {
            Some(("group", name)) => group = name,
            Some(("type", name)) => {
                let shape = shapes.object(&node.below)?;
                shapes.named.insert(name, shape);
            }
            Some(("kind", header)) => kinds.push(kind(group, header, &node, &mut shapes)?),
            _ => return Err(node.error("expected group, type or kind")),
        }
    }
    Ok(kinds)
}

fn tree(text: &'static str) -> Result<Vec<Node<'static>>, NotationError> {
    // The nodes that are open, the outermost first; one more at the bottom holds the top level.
    let mut open = vec![Node { line: 0, text: "", below: Vec::new() }];
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start_matches(' ');
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let depth = line.len() - content.len();
        let node = Node { line: index + 1, text: content.trim_end(), below: Vec::new() };
        if depth + 1 > open.len() {
            return Err(node.error("too deep"));
        }
        close(&mut open, depth + 1);
        open.push(node);
    }
    close(&mut open, 1);
    Ok(open.pop().map(|root| root.below).unwrap_or_default())
}

/// Puts nodes below the ones that they belong to until `len` are open.
fn close(open: &mut Vec<Node<'static>>, len: usize) {
    while open.len() > len {
        let Some(done) = open.pop() else { return };
        if let Some(parent) = open.last_mut() {
            parent.below.push(done);
        }
    }
}

fn kind(
    group: &'static str,
    header: &'static str,
    node: &Node<'static>,
    shapes: &mut Shapes<'_>,
) -> Result<Facts, NotationError> {
    let mut words = header.split(' ');
    let mut word = || words.next().ok_or_else(|| node.error("expected kind, plural, scope and versions"));
    let (name, plural, scope, versions) = (word()?, word()?, word()?, word()?);
    let scope = match scope {
        "namespaced" => Scope::Namespaced,
        "cluster" => Scope::Cluster,
        other => return Err(node.error(format!("{other:?} is no scope"))),
    };
    let mut facts = Facts { group, kind: name, plural, scope, ..Facts::default() };
    for mark in words {
        match mark {
            "status" => facts.has_status = true,
            "scale" => facts.has_scale = true,
            "all" => facts.in_all = true,
            _ => match mark.strip_prefix("short=") {
                Some(names) => facts.short_names = names.split(',').collect(),
                None => return Err(node.error(format!("unknown mark {mark:?}"))),
            },
        }
    }
    let own = |line: &&Node| line.text.split_once(' ').is_some_and(|(first, _)| first == "version");
    let common: Vec<&Node> = node.below.iter().filter(|line| !own(line)).collect();
    for version in versions.split(',') {
        let (version, is_deprecated) = version.strip_suffix('!').map_or((version, false), |name| (name, true));
        let section = node.below.iter().filter(own).find(|line| line.text.ends_with(&format!(" {version}")));
        let (columns, schema) = match section {
            Some(section) => shapes.body(&section.below.iter().collect::<Vec<_>>())?,
            None => shapes.body(&common)?,
        };
        facts.versions.push(VersionFacts { name: version, is_deprecated, deprecation: None, columns, schema });
    }
    Ok(facts)
}

/// The shapes that have a name, and what is made of them.
struct Shapes<'a> {
    named: HashMap<&'static str, Value>,
    common: &'a mut HashMap<&'static str, Value>,
}

impl Shapes<'_> {
    /// The columns and the schema of a version.
    fn body(&mut self, lines: &[&Node<'static>]) -> Result<(Vec<Column>, Value), NotationError> {
        let mut columns = Vec::new();
        let mut fields = Vec::new();
        for line in lines {
            match line.text.split_once(' ') {
                Some(("column", rest)) => columns.push(column(line, rest)?),
                Some(("idle" | "told", _)) => {}
                _ => fields.push(*line),
            }
        }
        let mut schema = self.object_of(&fields)?;
        for field in ["apiVersion", "kind"] {
            schema["properties"][field] = json!({"type": "string"});
        }
        schema["properties"]["metadata"] = json!({"type": "object"});
        Ok((columns, schema))
    }

    fn object(&mut self, lines: &[Node<'static>]) -> Result<Value, NotationError> {
        self.object_of(&lines.iter().collect::<Vec<_>>())
    }

    fn object_of(&mut self, lines: &[&Node<'static>]) -> Result<Value, NotationError> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut rules = Vec::new();
        for line in lines {
            if let Some(rule) = line.text.strip_prefix("rule ") {
                let (rule, message) = rule.split_once(" :: ").ok_or_else(|| line.error("a rule needs a message"))?;
                rules.push(json!({"rule": rule, "message": message}));
                continue;
            }
            let (name, rest) = line.text.split_once(':').ok_or_else(|| line.error("expected a field"))?;
            let (name, is_required) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
            let mut property = self.property(line, rest.trim_start())?;
            if is_required {
                required.push(name);
            } else if property.get("default").is_none() {
                property["nullable"] = json!(true);
            }
            if properties.insert(name.to_owned(), property).is_some() {
                return Err(line.error(format!("{name} is there twice")));
            }
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if !rules.is_empty() {
            schema["x-kubernetes-validations"] = json!(rules);
        }
        Ok(schema)
    }

    /// What follows the name of a field: `[]string enum(a|b) =a`.
    fn property(&mut self, line: &Node<'static>, text: &'static str) -> Result<Value, NotationError> {
        let (ty, marks) = text.split_once(' ').unwrap_or((text, ""));
        let base = ty.trim_start_matches("[]").trim_start_matches("{}").trim_start_matches("[]");
        let wraps = &ty[..ty.len() - base.len()];
        let mut inner = self.base(line, base)?;
        let mut outer = Map::new();
        for mark in marks.split(' ').filter(|mark| !mark.is_empty()) {
            if mark == "fixed" {
                let name = line.text.split([':', '*']).next().unwrap_or_default();
                inner["x-kubernetes-validations"] =
                    json!([{"rule": "self == oldSelf", "message": format!("{name} is immutable")}]);
                continue;
            }
            read_mark(mark, base, &mut inner, &mut outer)
                .ok_or_else(|| line.error(format!("unknown mark {mark:?}")))?;
        }
        let mut schema = inner;
        // The innermost is written last.
        for wrap in wraps.as_bytes().chunks(2).rev() {
            schema = match wrap {
                b"[]" => json!({"type": "array", "items": schema}),
                _ => json!({"type": "object", "additionalProperties": schema}),
            };
        }
        if let Some(schema) = schema.as_object_mut() {
            schema.extend(outer);
        }
        Ok(schema)
    }

    fn base(&mut self, line: &Node<'static>, name: &'static str) -> Result<Value, NotationError> {
        if name.is_empty() {
            return self.object(&line.below);
        }
        if !line.below.is_empty() {
            return Err(line.error("has both a type and fields"));
        }
        if let Some(known) = self.named.get(name).or_else(|| self.common.get(name)) {
            return Ok(known.clone());
        }
        let shape = shapes::of(name).ok_or_else(|| line.error(format!("unknown type {name:?}")))?;
        self.common.insert(name, shape.clone());
        Ok(shape)
    }
}

/// Marks of values belong to the innermost schema, those of lists and defaults to the whole.
fn read_mark(mark: &str, base: &str, inner: &mut Value, outer: &mut Map<String, Value>) -> Option<()> {
    let number = |text: &str| serde_json::from_str::<serde_json::Number>(text).ok().map(Value::Number);
    if let Some(values) = mark.strip_prefix("enum(").and_then(|rest| rest.strip_suffix(')')) {
        inner["enum"] = values.split('|').map(|value| literal(value, base)).collect::<Option<_>>()?;
    } else if let Some(pattern) = mark.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
        inner["pattern"] = json!(pattern);
    } else if let Some(keys) = mark.strip_prefix("keys(").and_then(|rest| rest.strip_suffix(')')) {
        outer.insert("x-kubernetes-list-type".to_owned(), json!("map"));
        outer.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys.split(',').collect::<Vec<_>>()));
    } else if mark == "set" {
        outer.insert("x-kubernetes-list-type".to_owned(), json!("set"));
    } else if let Some(value) = mark.strip_prefix('=') {
        outer.insert("default".to_owned(), literal(value, base)?);
    } else {
        for (prefix, keyword) in [
            (">=", "minimum"),
            ("<=", "maximum"),
            ("len>=", "minLength"),
            ("len<=", "maxLength"),
            ("items>=", "minItems"),
            ("items<=", "maxItems"),
        ] {
            let Some(value) = mark.strip_prefix(prefix).and_then(number) else { continue };
            if keyword.ends_with("Items") {
                outer.insert(keyword.to_owned(), value);
            } else {
                inner[keyword] = value;
            }
            return Some(());
        }
        return None;
    }
    Some(())
}

/// Texts are written bare, everything else as JSON.
fn literal(value: &str, base: &str) -> Option<Value> {
    match base {
        "string" | "quantity" | "duration" if value == "\"\"" => Some(json!("")),
        "string" | "quantity" | "duration" => Some(json!(value)),
        _ => serde_json::from_str(value).ok(),
    }
}

/// `Size: integer .spec.size priority=1`; names may have spaces.
fn column(line: &Node, text: &'static str) -> Result<Column, NotationError> {
    let (name, rest) = text.split_once(": ").ok_or_else(|| line.error("expected a column"))?;
    let mut words = rest.split(' ');
    let (Some(ty), Some(path)) = (words.next(), words.next()) else {
        return Err(line.error("a column needs a type and a path"));
    };
    let priority = match words.next() {
        None => 0,
        Some(word) => word
            .strip_prefix("priority=")
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| line.error(format!("unknown mark {word:?}")))?,
    };
    Ok(Column { name, ty, path, priority, description: "" })
}

#[cfg(test)]
mod tests;

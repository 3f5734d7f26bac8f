//! Match conditions: expressions over whole requests that say yes or no.
//!
//! Unlike the rules of a schema they see plain JSON: no field is typed, none is renamed.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::parser::Expression;
use serde_json::Value;

use super::check::{self, Weight};
use super::value::CONTEXT;
use super::{evaluate, stack};

/// What the conditions of one webhook may spend on one request, in upstream's units.
const BUDGET: u64 = 2_500_000;

/// A compiled condition.
#[derive(Debug)]
pub struct Condition {
    text: String,
    program: Expression,
    weight: Weight,
}

impl Condition {
    /// Compiles an expression that may use these variables; or why upstream would refuse it.
    pub fn compile(source: &str, variables: &[&str]) -> Result<Self, String> {
        let compiled = stack::with_room(|| check::compile_condition(source, variables));
        let (program, weight) = compiled.map_err(|err| err.to_string())??;
        Ok(Self { text: source.to_owned(), program, weight })
    }

    /// Whether each condition holds for these values, or why that cannot be told.
    pub fn evaluate(conditions: &[Self], variables: &[(&str, &Value)]) -> Vec<Result<bool, String>> {
        let run = || evaluate_here(conditions, variables);
        if !conditions.iter().any(|condition| condition.weight.is_deep()) {
            return run();
        }
        stack::with_room(run).unwrap_or_else(|err| vec![Err(err.to_string())])
    }
}

fn evaluate_here(conditions: &[Condition], variables: &[(&str, &Value)]) -> Vec<Result<bool, String>> {
    let mut plain = Plain::default();
    let mut scope = CONTEXT.new_inner_scope();
    for (name, value) in variables {
        scope.add_variable_from_value(*name, plain.convert(value));
    }
    let mut budget = BUDGET;
    let evaluate = |condition: &Condition| {
        let failed = |why: &str| format!("expression '{}' resulted in error: {why}", condition.text);
        let cost = condition.weight.cost(plain.longest_list, plain.longest_text);
        let Some(left) = budget.checked_sub(cost) else {
            budget = 0;
            return Err("validation failed due to running out of cost budget, no further validation rules will be run"
                .to_owned());
        };
        budget = left;
        match scope.resolve(&condition.program) {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(_) => Err(failed("must evaluate to bool")),
            Err(err) => Err(failed(evaluate::cause(&err).as_deref().unwrap_or("no such overload"))),
        }
    };
    conditions.iter().map(evaluate).collect()
}

/// Turns JSON into values, and remembers how long the longest list and text were.
#[derive(Default)]
struct Plain {
    longest_list: usize,
    longest_text: usize,
}

impl Plain {
    fn convert(&mut self, value: &Value) -> CelValue {
        match value {
            Value::Null => CelValue::Null,
            Value::Bool(truth) => CelValue::Bool(*truth),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => CelValue::Int(integer),
                None => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => {
                self.longest_text = self.longest_text.max(text.len());
                CelValue::String(Arc::new(text.clone()))
            }
            Value::Array(list) => {
                self.longest_list = self.longest_list.max(list.len());
                CelValue::List(Arc::new(list.iter().map(|item| self.convert(item)).collect()))
            }
            Value::Object(object) => {
                self.longest_list = self.longest_list.max(object.len());
                let mut map = HashMap::with_capacity(object.len());
                for (key, value) in object {
                    map.insert(Key::String(Arc::new(key.clone())), self.convert(value));
                }
                CelValue::Map(Map { map: Arc::new(map) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];

    fn evaluate(source: &str) -> Result<bool, String> {
        let condition = Condition::compile(source, &VARIABLES).expect(source);
        let object =
            json!({"metadata": {"name": "a", "namespace": "ns", "labels": {"app.kubernetes.io/name": "x"}}, "n": 3});
        let request = json!({"operation": "CREATE", "userInfo": {"username": "ann", "groups": ["devs"]}});
        let variables = [("object", &object), ("oldObject", &Value::Null), ("request", &request)];
        Condition::evaluate(&[condition], &variables).remove(0)
    }

    #[test]
    fn conditions_see_objects_as_they_are() {
        let table = [
            ("object.metadata.name == 'a'", true),
            ("object.metadata.namespace == 'ns'", true),
            ("object.metadata.labels['app.kubernetes.io/name'] == 'x'", true),
            ("oldObject == null", true),
            ("object.n > 3", false),
            ("'devs' in request.userInfo.groups", true),
            ("request.userInfo.groups.exists(g, g.startsWith('sys'))", false),
            ("has(object.spec) && object.spec.x == 1", false),
            ("!('skip' in object.metadata.labels)", true),
        ];
        for (source, expected) in table {
            assert_eq!(evaluate(source), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_an_error_in_upstreams_words() {
        let source = "object.missing.name == 'a'";
        assert_eq!(evaluate(source), Err(format!("expression '{source}' resulted in error: no such key: missing")));
        assert_eq!(
            evaluate("object.n + 'a' == 'b'"),
            Err("expression 'object.n + 'a' == 'b'' resulted in error: no such overload".to_owned())
        );
    }

    #[test]
    fn what_does_not_compile_is_refused() {
        let refused = |source| Condition::compile(source, &VARIABLES).expect_err(source);
        for source in ["obj.a", "self.a", "params.x", "object.a ==", "authorizer.path('/x').check('get').allowed()"] {
            assert!(refused(source).starts_with("compilation failed: "), "{source}: {}", refused(source));
        }
        for source in ["'text'", "3", "[object]"] {
            assert_eq!(refused(source), "must evaluate to bool", "{source}");
        }
    }
}

//! CEL: conditions of webhooks and expressions of policies, over objects that anybody may have made.

use croft_meta::json;
use croft_schema::Condition;
use croft_schema::expression::{Budget, Evaluation, Expression, Inputs, Names, Wants};
use serde_json::{Value, json};

use crate::{split, text};

const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];

fn object(data: &[u8]) -> Value {
    json::parse(data).unwrap_or_else(|_| {
        json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"n": 3, "list": [1, 2, 3], "text": "abc"}})
    })
}

/// A condition holds, does not, or cannot be told; and says the same when asked again.
pub(crate) fn cel_condition(data: &[u8]) {
    let [source, value] = split(data);
    let Some(source) = text(source) else { return };
    let Ok(condition) = Condition::compile(source, &VARIABLES) else { return };
    let (object, request) = (object(value), json!({"operation": "CREATE", "userInfo": {"username": "ann"}}));
    let variables = [("object", &object), ("oldObject", &Value::Null), ("request", &request)];
    let conditions = [condition];
    let first = Condition::evaluate(&conditions, &variables);
    assert_eq!(Condition::evaluate(&conditions, &variables), first, "{source}");
}

/// The same for policies, whose results may be anything.
pub(crate) fn cel_policy(data: &[u8]) {
    let [source, value] = split(data);
    let Some(source) = text(source) else { return };
    let names = Names { has_params: true, variables: Some(&["v"]), has_patches: true, ..Names::default() };
    let variable = || Expression::compile("object.spec", &names, Wants::Anything).map(|it| ("v".to_owned(), it));
    let Ok(variable) = variable() else { panic!("the variable does not compile") };
    let variables = [variable];
    let object = object(value);
    let inputs = Inputs { object: &object, ..Inputs::default() };
    for wants in [Wants::Bool, Wants::StringOrNull, Wants::Anything, Wants::Object, Wants::JsonPatch] {
        let Ok(expression) = Expression::compile(source, &names, wants) else { continue };
        let (budget, second) = (Budget::default(), Budget::default());
        let evaluation = Evaluation::new(inputs, &variables, &budget);
        let first = evaluation.json(&expression);
        if let Ok(value) = &first {
            assert_eq!(json::parse(value.to_string().as_bytes()).as_ref(), Ok(value), "{source}");
        }
        let again = Evaluation::new(inputs, &variables, &second).json(&expression);
        assert_eq!(again, first, "{source}");
        match wants {
            Wants::Bool => drop(evaluation.truth(&expression)),
            Wants::StringOrNull => drop(evaluation.text(&expression)),
            Wants::Object => drop(evaluation.object(&expression)),
            _ => {}
        }
    }
}

//! CEL: conditions of webhooks and expressions of policies, over objects that anybody may have made.

use croft_meta::json;
use croft_schema::expression::{Asked, Authorize, Budget, Evaluation, Expression, Inputs, Names, Verdict, Wants};
use serde_json::{Value, json};

use crate::{split, text};

/// Who may do whatever has an even number of letters.
#[derive(Debug)]
struct Even;

impl Authorize for Even {
    fn check(&self, asked: &Asked) -> Verdict {
        Verdict { is_allowed: asked.verb.len().is_multiple_of(2), reason: asked.resource.clone() }
    }

    fn request_resource(&self) -> Asked {
        Asked { resource: "configmaps".to_owned(), name: "a".to_owned(), ..Asked::default() }
    }
}

fn object(data: &[u8]) -> Value {
    json::parse(data).unwrap_or_else(|_| {
        json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"n": 3, "list": [1, 2, 3], "text": "abc"}})
    })
}

/// A condition holds, does not, or cannot be told; and says the same when asked again.
pub(crate) fn cel_condition(data: &[u8]) {
    let [source, value] = split(data);
    let Some(source) = text(source) else { return };
    let Ok(condition) = Expression::compile(source, &Names::WEBHOOK_CONDITION, Wants::Bool) else { return };
    let (object, request) = (object(value), json!({"operation": "CREATE", "userInfo": {"username": "ann"}}));
    let inputs = Inputs { object: &object, request: &request, authorizer: Some(&Even), ..Inputs::default() };
    let ask = || Evaluation::new(inputs, &[], &Budget::of_conditions()).holds(&condition);
    assert_eq!(ask(), ask(), "{source}");
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

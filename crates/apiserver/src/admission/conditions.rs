//! Match conditions, of policies and of webhooks.

use croft_schema::expression::{Evaluation, Expression, Fault};

use crate::auth::rbac::aggregate;

/// Do all conditions hold? One that does not outweighs those that fail; that the work is too much is final.
pub(crate) fn hold<'a>(conditions: &'a [Expression], evaluation: &Evaluation<'a>) -> Result<bool, String> {
    let mut failed: Vec<String> = Vec::new();
    for condition in conditions {
        match evaluation.holds(condition) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(fault @ Fault::Failed(_)) => failed.push(fault.of(condition)),
            Err(fault) => return Err(fault.of(condition)),
        }
    }
    if failed.is_empty() { Ok(true) } else { Err(aggregate(&failed)) }
}

#[cfg(test)]
mod tests {
    use croft_schema::expression::{Budget, Inputs, Names, Wants};
    use serde_json::json;

    use super::*;

    fn told(sources: &[&str]) -> Result<bool, String> {
        let compile =
            |source: &&str| Expression::compile(source, &Names::WEBHOOK_CONDITION, Wants::Bool).expect(source);
        let conditions: Vec<Expression> = sources.iter().map(compile).collect();
        let list: Vec<u32> = (0..1000).collect();
        let object = json!({"metadata": {"name": "a"}, "n": 3, "list": list});
        let inputs = Inputs { object: &object, ..Inputs::default() };
        let budget = Budget::of_conditions();
        let evaluation = Evaluation::new(inputs, &[], &budget);
        hold(&conditions, &evaluation)
    }

    #[test]
    fn one_that_does_not_hold_outweighs_those_that_fail() {
        let failing = "object.missing.name == 'a'";
        let failed = format!("expression '{failing}' resulted in error: no such key: missing");
        assert_eq!(told(&[]), Ok(true));
        assert_eq!(told(&["object.n == 3", "oldObject == null"]), Ok(true));
        assert_eq!(told(&[failing, "object.n > 3"]), Ok(false));
        assert_eq!(told(&["object.n == 3", failing]), Err(failed.clone()));
        assert_eq!(told(&[failing, failing]), Err(failed.clone()), "the same is said once");
        let other = "object.n + 'a' == 'b'";
        let both = format!("[{failed}, expression '{other}' resulted in error: no such overload]");
        assert_eq!(told(&[failing, other]), Err(both));
    }

    #[test]
    fn what_is_neither_true_nor_false_is_a_failure() {
        let name = "object.metadata.name";
        assert_eq!(told(&[name]), Err(format!("expression '{name}' resulted in error: must evaluate to bool")));
    }

    #[test]
    fn too_much_work_is_a_failure_whatever_comes_later() {
        let squares = "object.list.all(a, object.list.all(b, a + b >= 0))";
        let words = "no further validation rules will be run due to call cost exceeds limit for expression: ";
        assert_eq!(told(&[squares, "false"]), Err(format!("{words}{squares}")));
        // Each of them is cheap enough, but not all together.
        let third = "object.list.all(a, object.list.filter(b, b < 100).all(b, a + b >= 0))";
        let many = vec![third; 64];
        assert!(told(&many).is_err_and(|why| why.contains("cost")), "{:?}", told(&many));
    }
}

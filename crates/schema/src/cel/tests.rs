use serde_json::json;

use super::*;
use crate::Type;
use crate::expression::{Budget, Evaluation, Val};

fn rules(schema: &Value) -> CelRules {
    CelRules::compile(&Schema::from_json(schema).expect("valid"), &FieldPath::root()).expect("compiles")
}

fn texts(errors: &FieldErrors) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

/// What a Kubernetes 1.34 API server answered for the same rules and objects.
#[test]
fn errors_are_those_of_kubernetes() {
    let golden: Value = serde_json::from_str(include_str!("../../testdata/cel.json")).expect("JSON");
    let rules = rules(&golden["schema"]);
    let cases = golden["cases"].as_array().expect("list");
    assert!(cases.len() > 60);
    for case in cases {
        let old = Some(&case["old"]).filter(|old| !old.is_null());
        let errors = json!(texts(&rules.evaluate(&case["new"], old)));
        assert_eq!(errors, case["errors"], "{}", case["new"]);
    }
}

#[test]
fn rules_that_cannot_work_are_refused() {
    let path = FieldPath::new("s");
    let cases = [
        ("self.nope == 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"),
        ("foo == 1", "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^"),
        ("self.x", "cel expression must evaluate to a bool"),
        ("self.x ==", "compilation failed: ERROR: <input>:1:"),
    ];
    for (rule, want) in cases {
        let schema = json!({"type": "object", "properties": {"x": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": rule}]});
        let errors = CelRules::compile(&Schema::from_json(&schema).expect("valid"), &path).expect_err(rule);
        assert_eq!(errors[0].field.as_str(), "s.x-kubernetes-validations[0].rule");
        assert!(errors[0].detail.contains(want), "{}", errors[0].detail);
    }
}

#[test]
fn old_self_needs_a_list_that_can_be_correlated() {
    let rule = json!([{"rule": "self == oldSelf"}]);
    let schema = json!({"type": "object", "properties": {"l": {"type": "array",
        "items": {"type": "string", "x-kubernetes-validations": rule}}}});
    let errors =
        CelRules::compile(&Schema::from_json(&schema).expect("valid"), &FieldPath::new("s")).expect_err("list");
    assert_eq!(
        errors[0].to_string(),
        "s.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be \
         used on the uncorrelatable portion of the schema within s.properties[l]"
    );
}

#[test]
fn what_did_not_change_may_stay_invalid() {
    let rules = rules(&json!({"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]},
        "b": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0 || oldSelf > 0"}]},
    }}));
    let cases = [
        (json!({"a": -1}), json!({"a": -1, "b": 1}), true),
        (json!({"a": -1}), json!({"a": -2}), false),
        (json!({"b": -1}), json!({"b": -1}), false),
    ];
    for (old, new, want) in cases {
        assert_eq!(rules.evaluate(&new, Some(&old)).is_empty(), want, "{old} {new}");
    }
}

/// What stops a rule that takes too much, and all that would follow.
fn too_expensive(rule: &str) -> String {
    format!(
        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost \
         exceeds limit for rule: {rule}"
    )
}

#[test]
fn work_stops_at_the_limit() {
    let doubling = |from: &str, levels: usize| {
        let body = format!("v{levels}.size() > 0");
        let bind = |body, level| format!("cel.bind(v{}, v{level} + v{level}, {body})", level + 1);
        format!("cel.bind(v0, {from}, {})", (0..levels).rev().fold(body, bind))
    };
    let numbers: Vec<String> = (0..1400).map(|number| number.to_string()).collect();
    let made =
        format!("cel.bind(l, [{}], l.all(a, l.all(b, l.all(c, l.all(d, a + b + c + d >= 0)))))", numbers.join(","));
    let loops = "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))".to_owned();
    let (text, list) = (json!("abc"), json!((0..1000).collect::<Vec<u32>>()));
    for (ty, value, rule) in [
        ("string", &text, doubling("self + self", 40)),
        ("array", &list, doubling("self + self", 40)),
        ("string", &text, doubling("[self]", 40)),
        ("string", &text, doubling("self.split('')", 40)),
        ("string", &text, made),
        ("array", &list, loops),
    ] {
        let mut schema = json!({"type": ty, "x-kubernetes-validations": [{"rule": rule}, {"rule": "false"}]});
        if ty == "array" {
            schema["items"] = json!({"type": "integer"});
        }
        let errors = rules(&schema).evaluate(value, None);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].detail, too_expensive(&rule));
    }
    let few = rules(&json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
        {"rule": "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))"}]}));
    assert_eq!(texts(&few.evaluate(&json!([1, 2, 3]), None)), Vec::<String>::new());
}

#[test]
fn all_rules_of_a_request_share_a_budget() {
    let rule = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))";
    let schema = json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": rule}]}});
    let lists = |count: usize| json!(vec![(0..25).collect::<Vec<u32>>(); count]);
    assert_eq!(texts(&rules(&schema).evaluate(&lists(5), None)), Vec::<String>::new());
    let errors = rules(&schema).evaluate(&lists(200), None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    let want = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(errors[0].detail, want);
}

#[test]
fn messages_are_paid_for_too() {
    let expression = "cel.bind(l, [1,2,3,4,5,6,7,8,9,10], string(l.map(a, l.map(b, l.map(c, l.map(d, l.map(e, l.map(f, \
                      a + b + c + d + e + f))))))[0][0][0][0][0][0]))";
    let schema = json!({"type": "string", "x-kubernetes-validations": [
        {"rule": "false", "messageExpression": expression}, {"rule": "false"}]});
    let errors = rules(&schema).evaluate(&json!("abc"), None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    let want =
        "no further validation rules will be run due to call cost exceeds limit for messageExpression: \"cel.bind";
    assert!(errors[0].detail.starts_with(want), "{errors:?}");
}

/// A pattern is compiled once, however many items are held against it.
#[test]
fn patterns_are_paid_for_once() {
    let schema = json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [
        {"rule": "self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"}]}});
    assert_eq!(texts(&rules(&schema).evaluate(&json!(vec!["some-name"; 5000]), None)), Vec::<String>::new());
}

#[test]
fn deep_rules_fit_the_stack_of_a_worker() {
    let loops = (0..45).rev().fold("true".to_owned(), |body, level| format!("[1].all(x{level}, {body})"));
    let binds = (0..30).fold("self".to_owned(), |value, level| format!("cel.bind(x{level}, [{value}], x{level})"));
    let run = move || {
        for rule in [loops, format!("{binds} == {binds}")] {
            let schema = json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]});
            assert_eq!(texts(&rules(&schema).evaluate(&json!("abc"), None)), Vec::<String>::new(), "{rule}");
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread").join().expect("no overflow");
}

#[test]
fn hostile_rules_are_errors_not_crashes() {
    let deep = |open: &str, close: &str, n: usize| format!("{}true{}", open.repeat(n), close.repeat(n));
    let hostile = [
        deep("(", ")", 5000),
        deep("!", "", 5000),
        deep("[", "][0]", 5000),
        vec!["1"; 5000].join("+") + " > 0",
        vec!["self"; 5000].join("."),
        "Foo{a: 1} == 1".to_owned(),
        "self{a: 1}".to_owned(),
        "{'a': 1}.b".to_owned(),
        "[1][9223372036854775807] == 1".to_owned(),
        "-9223372036854775808 / -1 > 0".to_owned(),
        "-9223372036854775808 % -1 == 0".to_owned(),
        format!("self.?a{} == 1", ".optMap(x, x)".repeat(60)),
        "string(self).format([1,2]) == ''".to_owned(),
        "'%d'.format([]) == ''".to_owned(),
        "self.matches('(')".to_owned(),
        "'abc'.substring(2, 1) == ''".to_owned(),
        "'é'.charAt(9) == ''".to_owned(),
        "timestamp('9999-12-31T23:59:59Z') + duration('999999h') > timestamp('2000-01-01T00:00:00Z')".to_owned(),
        "duration('9223372036s') + duration('9223372036s') > duration('1s')".to_owned(),
        "int(1e300) == 1".to_owned(),
        "uint(-1) == 1u".to_owned(),
        "bytes('a')[7] == 1".to_owned(),
        "\u{0}".to_owned(),
        String::new(),
    ];
    for rule in hostile {
        let schema = json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]});
        if let Ok(rules) = CelRules::compile(&Schema::from_json(&schema).expect("valid"), &FieldPath::root()) {
            rules.evaluate(&json!("abc"), None);
        }
    }
}

/// The interpreter indexes arguments; a call with too few, too many or odd ones must be an error.
#[test]
fn odd_calls_are_errors_not_crashes() {
    let functions = "abs all bitAnd bitShiftLeft base64.decode base64.encode bool bytes ceil charAt cidr compareTo contains \
        containsCIDR containsIP dyn double duration endsWith exists exists_one family filter find findAll flatten format \
        format.named getDate getDayOfMonth getDayOfWeek getDayOfYear getEscapedPath getFullYear getHost getHostname getHours \
        getMilliseconds getMinutes getMonth getPort getQuery getScheme getSeconds has hasValue in indexOf int ip ip.isCanonical \
        isCIDR isGreaterThan isIP isInteger isLessThan isQuantity isSemver isSorted isURL join jsonpatch.escapeKey \
        lastIndexOf lowerAscii major map masked matches math.abs math.bitShiftLeft math.ceil math.greatest math.least \
        math.round max min minor optMap optFlatMap optional.none range optional.of optional.ofNonZeroValue or orValue patch \
        prefixLength quantity range replace reverse round semver sets.contains sets.equivalent sets.intersects sign size \
        slice sort sortBy split sqrt startsWith string strings.quote sub substring sum timestamp transformList trim type \
        uint upperAscii url validate value add asApproximateFloat asInteger distinct first last lists.range";
    let values = ["-1", "[1,'a']", "self"];
    let mut calls = Vec::new();
    for function in functions.split_whitespace() {
        calls.push(format!("{function}()"));
        for value in values {
            calls.push(format!("{function}({value})"));
            calls.push(format!("{value}.{function}()"));
            for other in ["'é'", "9223372036854775807"] {
                calls.push(format!("{function}({value}, {other})"));
                calls.push(format!("{value}.{function}({other})"));
                calls.push(format!("{value}.{function}({other}, {value})"));
            }
        }
    }
    let schema = Schema { ty: Type::String, ..Schema::default() };
    let mut ran = 0;
    for call in calls {
        let Ok(checked) = check::compile(&call, &schema, check::Wants::Bool, false, false) else { continue };
        let budget = Budget::default();
        drop(Evaluation::of_rule(Val::text("abc"), None, &budget).value(&checked.program));
        ran += 1;
    }
    assert!(ran > 500, "{ran}");
}

#[test]
fn the_language_is_kubernetes_dialect() {
    let schema = json!({"type": "object", "properties": {
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "s": {"type": "string"}, "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
    }});
    let object = json!({"m": {"a": 1}, "s": "é", "o": {}});
    let rules_that_hold = [
        "self.?o.?x.orValue(7) == 7",
        "self.m[?'a'].orValue(7) == 1",
        "!self.m[?'z'].hasValue()",
        "cel.bind(v, self.m['a'] + 1, v * v == 4)",
        "self.m[?'a'].optMap(v, v + 1).value() == 2",
        "!self.m[?'z'].optMap(v, v + 1).hasValue()",
        "self.m[?'a'].optFlatMap(v, optional.of(v + 1)).orValue(0) == 2",
        "size(self.s) == 1 && self.s.size() == 1",
        "dyn(self.s) == 'é'",
        "type(self.m['a']) == int && type(self.s) == string",
        "self.m.all(k, self.m[k] > 0)",
        "[1, 2].map(x, x > 1, x * 2) == [4]",
        "sets.contains([1, 2], [1]) && math.greatest(1, 2) == 2",
        "false && 1 / 0 == 1 ? false : (true || 1 / 0 == 1)",
        "'%s-%d'.format([self.s, 5]) == 'é-5'",
    ];
    for rule in rules_that_hold {
        let mut schema = schema.clone();
        schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
        assert_eq!(texts(&rules(&schema).evaluate(&object, None)), Vec::<String>::new(), "{rule}");
    }
}

#[test]
fn rules_do_not_run_on_a_wrong_shape() {
    let at = FieldPath::new("spec");
    assert!(CelRules::skipped_because_of(&vec![FieldError::invalid(&at, 1, "")]).is_none());
    let error = CelRules::skipped_because_of(&vec![FieldError::required(&at, "")]).expect("blocked");
    assert!(error.to_string().starts_with("<nil>: Invalid value: null: some validation rules were not checked"));
}

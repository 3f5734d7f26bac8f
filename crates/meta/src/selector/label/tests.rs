use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn the_whole_grammar_parses_and_prints() {
    let cases = [
        ("", ""),
        ("a=b,c==d,e!=f", "a=b,c==d,e!=f"),
        ("x in (b, a),y notin (z)", "x in (a,b),y notin (z)"),
        ("i,!j", "i,!j"),
        ("k>5,l<3", "k>5,l<3"),
        ("b,a", "a,b"),
        ("x in ()", "x in ()"),
        ("x in (a,,b)", "x in (,a,b)"),
        ("x in (,)", "x in ()"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("a=", "a="),
        ("a =\tb", "a=b"),
        ("example.com/a notin (b)", "example.com/a notin (b)"),
    ];
    for (text, want) in cases {
        let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(selector.to_string(), want, "{text}");
    }
}

#[test]
fn bad_selectors_get_upstreams_words() {
    let cases = [
        ("a,", "found '', expected: identifier after ','"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "k>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must \
             be an integer",
        ),
        (
            "a=-",
            "unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label must be an empty string \
             or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            "a/=b",
            "unable to parse requirement: <nil>: Invalid value: \"a/\": name part must be non-empty; name part must \
             consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(LabelSelector::parse(text).map_err(|e| e.to_string()), Err(want.to_owned()), "{text}");
    }
}

#[test]
fn requirements_match_labels() {
    let labels = json!({"metadata": {"labels": {"a": "1", "b": "x"}}});
    let cases = [
        ("", true),
        ("a=1", true),
        ("a=2", false),
        ("c!=x", true),
        ("b!=x", false),
        ("a in (1,2)", true),
        ("c in (1)", false),
        ("c notin (1)", true),
        ("a,!c", true),
        ("!a", false),
        ("a>0", true),
        ("a<1", false),
        ("b>0", false),
    ];
    for (text, want) in cases {
        assert_eq!(LabelSelector::parse(text).expect("valid").matches_object(&labels), want, "{text}");
    }
}

#[test]
fn the_json_form_is_understood() {
    let selector = LabelSelector::from_json(&json!({"matchLabels": {"a": "b"}, "matchExpressions": [
        {"key": "c", "operator": "NotIn", "values": ["y", "x"]}, {"key": "d", "operator": "Exists"}]}));
    assert_eq!(selector.expect("valid").to_string(), "a=b,c notin (x,y),d");
    assert!(LabelSelector::from_json(&json!({})).expect("valid").is_everything());
    assert!(!LabelSelector::from_json(&json!(null)).expect("valid").matches(|_| None));
    let bad = LabelSelector::from_json(&json!({"matchExpressions": [{"key": "c", "operator": "Gt"}]}));
    assert_eq!(bad.expect_err("refused").to_string(), "\"Gt\" is not a valid label selector operator");
}

proptest! {
    #[test]
    fn printed_selectors_parse_back(text in "[a-c]( in | notin |=|!=|==|>)(\\([xy],[yz]\\)|[0-9])") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-c=!<>(), \\x00é]*") {
        let _ = LabelSelector::parse(&text);
    }
}

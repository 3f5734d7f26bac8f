use serde_json::json;

use super::*;

fn hook(stage: Stage, version: &str) -> Hook {
    Hook::parse("c", &json!({"name": "a.b.c", "admissionReviewVersions": [version]}), stage)
}

fn answer(response: &Value) -> Vec<u8> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    review.to_string().into_bytes()
}

fn reason(stage: Stage, body: &[u8]) -> String {
    match read(&hook(stage, "v1"), "u", body, &mut Remarks::default()) {
        Err(Failure::Calling { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nonsense_is_named() {
    let invalid = |why: &str| format!("received invalid webhook response: {why}");
    let table: Vec<(Stage, Vec<u8>, String)> = vec![
        (
            Stage::Mutating,
            b"hello".to_vec(),
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'h' looking for \
             beginning of value"
                .to_owned(),
        ),
        (Stage::Mutating, answer(&Value::Null), invalid("webhook response was absent")),
        (Stage::Mutating, answer(&json!({"uid": "x"})), invalid(r#"expected response.uid="u", got "x""#)),
        (
            Stage::Mutating,
            json!({"response": {"uid": "u", "allowed": true}}).to_string().into_bytes(),
            invalid("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="),
        ),
        (
            Stage::Mutating,
            answer(&json!({"uid": "u", "allowed": true, "patch": "W10="})),
            invalid("webhook returned response.patch but not response.patchType"),
        ),
        (
            Stage::Mutating,
            answer(&json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})),
            invalid("webhook returned response.patchType but not response.patch"),
        ),
        (
            Stage::Mutating,
            answer(&json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "Merge"})),
            r#"unsupported patch type "Merge""#.to_owned(),
        ),
        (
            Stage::Validating,
            answer(&json!({"uid": "u", "allowed": true, "patch": "W10="})),
            invalid("validating webhook may not return response.patch"),
        ),
        (
            Stage::Mutating,
            answer(&json!({"uid": "u", "allowed": "yes"})),
            "failed to call webhook: json: cannot unmarshal string into Go struct field \
             AdmissionResponse.response.allowed of type bool"
                .to_owned(),
        ),
    ];
    for (stage, body, expected) in table {
        assert_eq!(reason(stage, &body), expected);
    }
}

#[test]
fn a_good_answer_is_taken_apart() {
    let mut remarks = Remarks::default();
    let body = answer(&json!({
        "uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch",
        "warnings": ["careful"], "auditAnnotations": {"k": "v"},
    }));
    let consent = read(&hook(Stage::Mutating, "v1"), "u", &body, &mut remarks).unwrap();
    assert_eq!(consent.patch.as_deref(), Some(&b"[]"[..]));
    assert_eq!(remarks.warnings, ["careful"]);
    assert_eq!(remarks.annotations["k"], "v");
}

#[test]
fn annotations_that_have_no_name_are_left_out() {
    let mut remarks = Remarks::default();
    let long = "x".repeat(64);
    let annotations = json!({"k": "v", "a\"b": "1", "a\u{1}": "2", "a/b": "3", "": "4", (long): "5", "n": 6});
    let body = answer(&json!({"uid": "u", "allowed": true, "auditAnnotations": annotations}));
    read(&hook(Stage::Validating, "v1"), "u", &body, &mut remarks).unwrap();
    assert_eq!(remarks.annotations, [("k".to_owned(), "v".to_owned())].into());
}

#[test]
fn the_old_form_is_read_leniently() {
    let body = json!({"response": {"allowed": true, "patch": "W10="}}).to_string();
    let consent = read(&hook(Stage::Mutating, "v1beta1"), "u", body.as_bytes(), &mut Remarks::default()).unwrap();
    assert_eq!(consent.patch.as_deref(), Some(&b"[]"[..]));
}

#[test]
fn remarks_count_even_in_a_refusal() {
    let mut remarks = Remarks::default();
    let body = answer(&json!({"uid": "u", "allowed": false, "warnings": ["w"]}));
    let refused = read(&hook(Stage::Validating, "v1"), "u", &body, &mut remarks);
    assert!(matches!(refused, Err(Failure::Denied(_))));
    assert_eq!(remarks.warnings, ["w"]);
}

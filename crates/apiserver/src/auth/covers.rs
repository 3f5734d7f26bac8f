//! Do these rules include those? The question behind escalation checks.

use super::rule::{Rule, has, has_or_all, url_covers};

/// What of `wanted` is not in `held`, in rules of one verb on one thing each. Empty means all of it is held.
pub(super) fn uncovered(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    // Each piece is so small that a single rule covers it or none does.
    wanted.iter().flat_map(pieces).filter(|piece| !held.iter().any(|rule| rule_covers(rule, piece))).collect()
}

/// The rule as rules with one verb and one resource (and name), or one URL.
fn pieces(rule: &Rule) -> Vec<Rule> {
    let mut pieces = Vec::new();
    let one = |value: &String| vec![value.clone()];
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let piece = Rule { verbs: one(verb), groups: one(group), resources: one(resource), ..Rule::default() };
                if rule.names.is_empty() {
                    pieces.push(piece);
                } else {
                    pieces.extend(rule.names.iter().map(|name| Rule { names: one(name), ..piece.clone() }));
                }
            }
        }
    }
    for url in &rule.urls {
        pieces.extend(rule.verbs.iter().map(|verb| Rule { verbs: one(verb), urls: one(url), ..Rule::default() }));
    }
    pieces
}

/// `piece` has at most one value in each field.
fn rule_covers(rule: &Rule, piece: &Rule) -> bool {
    let all = |set: &[String], wanted: &[String]| wanted.iter().all(|value| has_or_all(set, value));
    all(&rule.verbs, &piece.verbs)
        && all(&rule.groups, &piece.groups)
        && piece.resources.iter().all(|resource| covers_resource(&rule.resources, resource))
        && (rule.names.is_empty() || (!piece.names.is_empty() && piece.names.iter().all(|name| has(&rule.names, name))))
        && piece.urls.iter().all(|url| rule.urls.iter().any(|pattern| url_covers(pattern, url)))
}

fn covers_resource(held: &[String], resource: &str) -> bool {
    if has_or_all(held, resource) {
        return true;
    }
    resource.split_once('/').is_some_and(|(_, subresource)| has(held, &format!("*/{subresource}")))
}

/// Rules about one resource (and name) that differ only by verb become one, so that messages stay short.
pub(super) fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    for rule in rules {
        let simple =
            rule.groups.len() == 1 && rule.resources.len() == 1 && rule.names.len() <= 1 && rule.urls.is_empty();
        let same = compacted.iter_mut().find(|known| {
            simple
                && known.urls.is_empty()
                && (&known.groups, &known.resources, &known.names) == (&rule.groups, &rule.resources, &rule.names)
        });
        match same {
            Some(known) => known.verbs.extend(rule.verbs),
            None => compacted.push(rule),
        }
    }
    compacted
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(list: Value) -> Vec<Rule> {
        let Value::Array(list) = list else { panic!("{list}") };
        list.iter().map(Rule::from_json).collect()
    }

    #[test]
    fn covers_as_upstream() {
        let on = |verbs: Value, group: &str, resources: Value| json!({"verbs": verbs, "apiGroups": [group], "resources": resources});
        let named =
            |names: Value| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names});
        let urls = |urls: Value| json!({"verbs": ["get"], "nonResourceURLs": urls});
        let table = [
            (
                "the same",
                json!([on(json!(["get"]), "", json!(["pods"]))]),
                json!([on(json!(["get"]), "", json!(["pods"]))]),
                true,
            ),
            (
                "other verb",
                json!([on(json!(["get"]), "", json!(["pods"]))]),
                json!([on(json!(["list"]), "", json!(["pods"]))]),
                false,
            ),
            (
                "other group",
                json!([on(json!(["get"]), "", json!(["pods"]))]),
                json!([on(json!(["get"]), "x", json!(["pods"]))]),
                false,
            ),
            (
                "from two rules",
                json!([on(json!(["get"]), "", json!(["pods"])), on(json!(["list"]), "", json!(["pods"]))]),
                json!([on(json!(["get", "list"]), "", json!(["pods"]))]),
                true,
            ),
            (
                "not across rules",
                json!([on(json!(["get"]), "", json!(["pods"])), on(json!(["list"]), "", json!(["services"]))]),
                json!([on(json!(["get", "list"]), "", json!(["pods", "services"]))]),
                false,
            ),
            (
                "everything",
                json!([on(json!(["*"]), "*", json!(["*"]))]),
                json!([on(json!(["x"]), "y", json!(["z/w"]))]),
                true,
            ),
            (
                "a star needs a star",
                json!([on(json!(["get", "list"]), "", json!(["pods"]))]),
                json!([on(json!(["*"]), "", json!(["pods"]))]),
                false,
            ),
            (
                "subresource by star",
                json!([on(json!(["get"]), "", json!(["*/scale"]))]),
                json!([on(json!(["get"]), "", json!(["rc/scale"]))]),
                true,
            ),
            (
                "not the resource itself",
                json!([on(json!(["get"]), "", json!(["*/scale"]))]),
                json!([on(json!(["get"]), "", json!(["rc"]))]),
                false,
            ),
            (
                "not another subresource",
                json!([on(json!(["get"]), "", json!(["*/scale"]))]),
                json!([on(json!(["get"]), "", json!(["rc/status"]))]),
                false,
            ),
            ("names narrow", json!([named(json!([]))]), json!([named(json!(["a"]))]), true),
            ("names do not widen", json!([named(json!(["a"]))]), json!([named(json!([]))]), false),
            ("all names held", json!([named(json!(["a", "b"]))]), json!([named(json!(["b", "a"]))]), true),
            ("one name missing", json!([named(json!(["a"]))]), json!([named(json!(["a", "b"]))]), false),
            (
                "url below a star",
                json!([urls(json!(["/apis/*"]))]),
                json!([urls(json!(["/apis/x", "/apis/y/*"]))]),
                true,
            ),
            ("url star wider", json!([urls(json!(["/apis/*"]))]), json!([urls(json!(["/apis*"]))]), false),
            ("every url", json!([urls(json!(["*"]))]), json!([urls(json!(["/x", "*"]))]), true),
            (
                "urls are not resources",
                json!([urls(json!(["*"]))]),
                json!([on(json!(["get"]), "", json!(["pods"]))]),
                false,
            ),
            ("nothing wanted", json!([]), json!([]), true),
        ];
        for (what, held, wanted, covered) in table {
            let missing = uncovered(&rules(held), &rules(wanted));
            assert_eq!(missing.is_empty(), covered, "{what}: {missing:?}");
        }
    }

    #[test]
    fn missing_rules_are_listed_compactly() {
        let held = rules(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        let wanted = rules(json!([
            {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods", "secrets"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
        ]));
        let missing: Vec<String> = compact(uncovered(&held, &wanted)).iter().map(Rule::compact).collect();
        assert_eq!(
            missing,
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "watch"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
            ]
        );
    }
}

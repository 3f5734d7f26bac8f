//! What a namespace on its way out says about its content, in upstream's words.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What a look at the content found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) discovery: Option<String>,
    pub(super) errors: Vec<String>,
    /// `configmaps.` and how many there are.
    pub(super) remaining: BTreeMap<String, usize>,
    pub(super) finalizers: BTreeMap<String, usize>,
}

/// A kind of condition, and what it says when all is well.
struct Kind {
    name: &'static str,
    reason: &'static str,
    message: &'static str,
}

const DISCOVERY: Kind = Kind {
    name: "NamespaceDeletionDiscoveryFailure",
    reason: "ResourcesDiscovered",
    message: "All resources successfully discovered",
};
const PARSING: Kind = Kind {
    name: "NamespaceDeletionGroupVersionParsingFailure",
    reason: "ParsedGroupVersions",
    message: "All legacy kube types successfully parsed",
};
const DELETION: Kind = Kind {
    name: "NamespaceDeletionContentFailure",
    reason: "ContentDeleted",
    message: "All content successfully deleted, may be waiting on finalization",
};
const CONTENT: Kind =
    Kind { name: "NamespaceContentRemaining", reason: "ContentRemoved", message: "All content successfully removed" };
const FINALIZERS: Kind = Kind {
    name: "NamespaceFinalizersRemaining",
    reason: "ContentHasNoFinalizers",
    message: "All content-preserving finalizers finished",
};

impl Findings {
    pub(super) fn is_clear(&self) -> bool {
        self.discovery.is_none() && self.errors.is_empty() && self.remaining.is_empty()
    }

    /// The conditions as they are now; those that say the same as before stay as they were.
    pub(super) fn conditions(&self, old: &[Value], now: &str) -> Vec<Value> {
        let told = [
            (DISCOVERY, self.discovery.clone().map(|message| ("DiscoveryFailed", message))),
            // Groups and versions are never parsed from strings here.
            (PARSING, None),
            (DELETION, self.deletion_failure()),
            (CONTENT, self.content_remaining()),
            (FINALIZERS, self.finalizers_remaining()),
        ];
        let mut conditions = old.to_vec();
        for (kind, problem) in told {
            set(&mut conditions, &kind, problem, now);
        }
        conditions
    }

    fn deletion_failure(&self) -> Option<(&'static str, String)> {
        let mut errors = self.errors.clone();
        errors.sort();
        let message = format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", "));
        (!errors.is_empty()).then_some(("ContentDeletionFailed", message))
    }

    fn content_remaining(&self) -> Option<(&'static str, String)> {
        let list = join(&self.remaining, |resource, count| format!("{resource} has {count} resource instances"));
        list.map(|list| ("SomeResourcesRemain", format!("Some resources are remaining: {list}")))
    }

    fn finalizers_remaining(&self) -> Option<(&'static str, String)> {
        let list = join(&self.finalizers, |finalizer, count| format!("{finalizer} in {count} resource instances"));
        let text = |list| format!("Some content in the namespace has finalizers remaining: {list}");
        list.map(|list| ("SomeFinalizersRemain", text(list)))
    }
}

fn join(counts: &BTreeMap<String, usize>, show: impl Fn(&str, usize) -> String) -> Option<String> {
    let mut shown: Vec<String> = counts.iter().map(|(name, count)| show(name, *count)).collect();
    shown.sort();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn set(conditions: &mut Vec<Value>, kind: &Kind, problem: Option<(&'static str, String)>, now: &str) {
    let (status, reason, message) = match problem {
        Some((reason, message)) => ("True", reason, message),
        None => ("False", kind.reason, kind.message.to_owned()),
    };
    let old = conditions.iter_mut().find(|condition| condition["type"] == kind.name);
    let since = match &old {
        Some(old) if old["status"] == status => old["lastTransitionTime"].clone(),
        _ => json!(now),
    };
    let new = json!({
        "type": kind.name, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(conditions: &'a [Value], name: &str) -> &'a Value {
        conditions.iter().find(|c| c["type"] == name).unwrap()
    }

    #[test]
    fn a_clear_namespace_says_so_five_times() {
        let conditions = Findings::default().conditions(&[], "2026-01-01T00:00:00Z");
        assert_eq!(conditions.len(), 5);
        assert!(conditions.iter().all(|c| c["status"] == "False"));
        assert_eq!(find(&conditions, "NamespaceContentRemaining")["reason"], "ContentRemoved");
    }

    #[test]
    fn what_remains_is_counted_in_upstreams_words() {
        let findings = Findings {
            errors: vec!["b".to_owned(), "a".to_owned()],
            remaining: [("pods.".to_owned(), 2), ("configmaps.".to_owned(), 1)].into(),
            finalizers: [("example.com/hold".to_owned(), 3)].into(),
            ..Findings::default()
        };
        assert!(!findings.is_clear());
        let conditions = findings.conditions(&[], "t");
        let message = |name| find(&conditions, name)["message"].as_str().unwrap().to_owned();
        assert_eq!(
            message("NamespaceContentRemaining"),
            "Some resources are remaining: configmaps. has 1 resource instances, pods. has 2 resource instances"
        );
        assert_eq!(
            message("NamespaceFinalizersRemaining"),
            "Some content in the namespace has finalizers remaining: example.com/hold in 3 resource instances"
        );
        assert_eq!(
            message("NamespaceDeletionContentFailure"),
            "Failed to delete all resource types, 2 remaining: a, b"
        );
    }

    #[test]
    fn the_time_changes_only_with_the_status() {
        let held = |count| Findings { remaining: [("pods.".to_owned(), count)].into(), ..Findings::default() };
        let first = held(2).conditions(&[], "1");
        let second = held(1).conditions(&first, "2");
        assert_ne!(first, second);
        assert_eq!(find(&second, "NamespaceContentRemaining")["lastTransitionTime"], "1");
        assert_eq!(held(1).conditions(&second, "3"), second);
        let third = held(0).conditions(&second, "4");
        assert_eq!(find(&third, "NamespaceDeletionDiscoveryFailure")["lastTransitionTime"], "1");
        let cleared = Findings::default().conditions(&second, "5");
        assert_eq!(find(&cleared, "NamespaceContentRemaining")["lastTransitionTime"], "5");
    }

    #[test]
    fn foreign_conditions_stay() {
        let old = [json!({"type": "Other", "status": "True"})];
        let conditions = Findings::default().conditions(&old, "t");
        assert_eq!(conditions[0], old[0]);
        assert_eq!(conditions.len(), 6);
    }
}

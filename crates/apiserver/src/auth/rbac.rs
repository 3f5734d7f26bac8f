//! Role-based access control: a decision from roles and bindings held ready in memory.
//!
//! The four kinds are parsed once per change into an [`Index`], made anew by the first decision after a change. Rules
//! only ever allow; what none allows is denied.

mod index;

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::rule::Rule;
use super::{Attributes, MASTERS, RBAC_GROUP};
use crate::cache::{Cache, Derived};
use crate::user::UserInfo;

use index::Index;
pub(super) use index::{MissingRole, RoleRef};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// Which binding allowed it, or which bindings could not be followed; may be empty.
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) struct Rbac {
    index: Derived<Index, 4>,
}

impl Rbac {
    pub(crate) fn new(cache: &Cache) -> Self {
        Self { index: Derived::of(cache, RBAC_GROUP, index::SOURCES) }
    }

    pub(crate) fn authorize(&self, user: &UserInfo, wanted: &Attributes<'_>) -> Decision {
        if user.is_member_of(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut failures = Vec::new();
        let index = self.index();
        let decision = index.visit(user, wanted.namespace, |source, rules| {
            match rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(wanted)) => {
                    return ControlFlow::Break(format!("RBAC: allowed by {source}"));
                }
                Ok(_) => {}
                Err(missing) => failures.push(missing.to_string()),
            }
            ControlFlow::Continue(())
        });
        match decision {
            ControlFlow::Break(reason) => Decision { allowed: true, reason },
            ControlFlow::Continue(()) if failures.is_empty() => Decision { allowed: false, reason: String::new() },
            ControlFlow::Continue(()) => Decision { allowed: false, reason: format!("RBAC: {}", aggregate(&failures)) },
        }
    }

    /// The rules that apply to a user in a namespace (empty: at the cluster scope), and what could not be followed.
    pub(super) fn held(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Vec<MissingRole>) {
        let (mut held, mut missing) = (Vec::new(), Vec::new());
        let index = self.index();
        // Never breaks: every rule counts.
        let _: ControlFlow<()> = index.visit(user, namespace, |_, rules| {
            match rules {
                Ok(rules) => held.extend(rules.iter().cloned()),
                Err(gone) => missing.push(gone.clone()),
            }
            ControlFlow::Continue(())
        });
        (held, missing)
    }

    /// The status of a SelfSubjectRulesReview.
    pub(crate) fn rules_for(&self, user: &UserInfo, namespace: &str) -> Value {
        let (mut resource_rules, mut url_rules) = (Vec::new(), Vec::new());
        let (held, missing) = self.held(user, namespace);
        for rule in held {
            let Rule { verbs, groups, resources, names, urls } = rule;
            if !urls.is_empty() {
                url_rules.push(Rule { verbs: verbs.clone(), urls, ..Rule::default() }.to_json());
            }
            if !resources.is_empty() {
                resource_rules.push(Rule { verbs, groups, resources, names, ..Rule::default() }.to_json());
            }
        }
        let mut status = json!({"resourceRules": resource_rules, "nonResourceRules": url_rules, "incomplete": false});
        if !missing.is_empty() {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            status["evaluationError"] = Value::from(aggregate(&missing));
        }
        status
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub(super) fn referenced(&self, role: &RoleRef, namespace: &str) -> Result<Arc<[Rule]>, MissingRole> {
        self.index().resolve(role, namespace)
    }

    /// The index as of now.
    fn index(&self) -> Arc<Index> {
        self.index.get(Index::build)
    }
}

/// Several errors in one text as Go's aggregate joins them: duplicates once, more than one in brackets.
pub(crate) fn aggregate(errors: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for error in errors {
        if !seen.contains(&error.as_str()) {
            seen.push(error);
        }
    }
    match seen.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests;

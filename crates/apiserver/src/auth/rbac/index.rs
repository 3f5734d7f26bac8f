//! Roles and bindings, parsed, and found by who they are for.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use croft_meta::field::go_quote;
use serde_json::Value;

use crate::auth::rule::{Rule, rules_of};
use crate::auth::service_account;
use crate::cache::{Collection, Object, Parsed};
use crate::user::UserInfo;

/// The stored objects that decide.
pub(super) const SOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

#[derive(Debug, Default)]
pub(super) struct Index {
    cluster_roles: Parsed<Role>,
    roles: Parsed<Role>,
    parsed_cluster_role_bindings: Parsed<Binding>,
    parsed_role_bindings: Parsed<Binding>,
    cluster_role_bindings: Bindings,
    /// By namespace.
    role_bindings: HashMap<Box<str>, Bindings>,
}

#[derive(Debug)]
struct Role {
    rules: Arc<[Rule]>,
}

/// Bindings of one scope, in the order of their names.
#[derive(Debug, Default)]
struct Bindings {
    list: Vec<Arc<Binding>>,
    /// Places in `list`, each with the place of the subject in the binding.
    by_user: HashMap<Box<str>, Vec<(usize, usize)>>,
    by_group: HashMap<Box<str>, Vec<(usize, usize)>>,
}

#[derive(Debug)]
struct Binding {
    namespace: Box<str>,
    name: Box<str>,
    role: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl RoleRef {
    pub(crate) fn of(binding: &Value) -> Self {
        let field = |name: &str| binding["roleRef"][name].as_str().unwrap_or_default().to_owned();
        Self { group: field("apiGroup"), kind: field("kind"), name: field("name") }
    }
}

#[derive(Debug)]
struct Subject {
    kind: Box<str>,
    name: Box<str>,
    namespace: Box<str>,
}

/// A binding refers to a role that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRole(pub(crate) RoleRef);

impl fmt::Display for MissingRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoleRef { kind, name, .. } = &self.0;
        match kind.as_str() {
            "Role" | "ClusterRole" => {
                let (singular, name) = (kind.to_lowercase(), go_quote(name));
                write!(f, "{singular}.{} {name} not found", crate::auth::RBAC_GROUP)
            }
            _ => write!(f, "unsupported role reference kind: {}", go_quote(kind)),
        }
    }
}

/// Through which binding, and as whom, a user holds rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { namespace, name, role, .. } = self.binding;
        let (kind, name) = match &**namespace {
            "" => ("ClusterRoleBinding", go_quote(name)),
            // Name first, as upstream has it.
            namespace => ("RoleBinding", go_quote(&format!("{name}/{namespace}"))),
        };
        write!(f, "{kind} {name} of {} {} to ", role.kind, go_quote(&role.name))?;
        let subject = match (&*self.subject.kind, &*self.subject.namespace) {
            ("ServiceAccount", "") => format!("{}/{namespace}", self.subject.name),
            ("ServiceAccount", namespace) => format!("{}/{namespace}", self.subject.name),
            _ => self.subject.name.to_string(),
        };
        write!(f, "{} {}", self.subject.kind, go_quote(&subject))
    }
}

impl Index {
    pub(super) fn build(sources: [&Collection; SOURCES.len()], previous: &Self) -> Self {
        let [cluster_roles, roles, of_cluster, of_namespaces] = sources.map(|collection| collection.list(""));
        let mut index = Self {
            cluster_roles: Parsed::of(&cluster_roles, &previous.cluster_roles, Role::parse),
            roles: Parsed::of(&roles, &previous.roles, Role::parse),
            parsed_cluster_role_bindings: Parsed::of(
                &of_cluster,
                &previous.parsed_cluster_role_bindings,
                Binding::parse,
            ),
            parsed_role_bindings: Parsed::of(&of_namespaces, &previous.parsed_role_bindings, Binding::parse),
            ..Self::default()
        };
        for binding in of_cluster.iter().filter_map(|object| index.parsed_cluster_role_bindings.get(object.id())) {
            index.cluster_role_bindings.add(binding);
        }
        for binding in of_namespaces.iter().filter_map(|object| index.parsed_role_bindings.get(object.id())) {
            index.role_bindings.entry(binding.namespace.clone()).or_default().add(binding);
        }
        index
    }

    /// Shows the rules of every binding that applies: those of the cluster first, then those of the namespace.
    pub(super) fn visit<B>(
        &self,
        user: &UserInfo,
        namespace: &str,
        mut see: impl FnMut(Source<'_>, Result<&[Rule], &MissingRole>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let local = self.role_bindings.get(namespace).filter(|_| !namespace.is_empty());
        for bindings in [Some(&self.cluster_role_bindings), local].into_iter().flatten() {
            for source in bindings.applying_to(user) {
                match self.resolve(&source.binding.role, &source.binding.namespace) {
                    Ok(rules) => see(source, Ok(&rules))?,
                    Err(missing) => see(source, Err(&missing))?,
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The rules of a role referred to from `namespace`; empty for a ClusterRoleBinding.
    pub(super) fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<Arc<[Rule]>, MissingRole> {
        let found = match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(&format!("{namespace}/{}", role.name)),
            _ => None,
        };
        found.map(|role| Arc::clone(&role.rules)).ok_or_else(|| MissingRole(role.clone()))
    }
}

impl Role {
    fn parse(object: &Object) -> Self {
        Self { rules: rules_of(&object.json()).into() }
    }
}

impl Binding {
    fn parse(object: &Object) -> Self {
        let json = object.json();
        let subjects = json["subjects"].as_array().into_iter().flatten().map(|subject| {
            let field = |name: &str| Box::from(subject[name].as_str().unwrap_or_default());
            Subject { kind: field("kind"), name: field("name"), namespace: field("namespace") }
        });
        Self {
            namespace: object.namespace().into(),
            name: object.name().into(),
            role: RoleRef::of(&json),
            subjects: subjects.collect(),
        }
    }
}

impl Bindings {
    fn add(&mut self, binding: &Arc<Binding>) {
        let at = self.list.len();
        for (subject_at, subject) in binding.subjects.iter().enumerate() {
            let places = match &*subject.kind {
                "User" => self.by_user.entry(subject.name.clone()),
                "Group" => self.by_group.entry(subject.name.clone()),
                "ServiceAccount" => {
                    // A service account without a namespace is one of the binding's own.
                    let own = if subject.namespace.is_empty() { &binding.namespace } else { &subject.namespace };
                    if own.is_empty() {
                        continue;
                    }
                    self.by_user.entry(service_account::username(own, &subject.name).into())
                }
                _ => continue,
            };
            places.or_default().push((at, subject_at));
        }
        self.list.push(Arc::clone(binding));
    }

    /// In order, each binding once, with the first of its subjects that applies.
    fn applying_to(&self, user: &UserInfo) -> impl Iterator<Item = Source<'_>> {
        let by_group = user.groups.iter().filter_map(|group| self.by_group.get(group.as_str()));
        let places = self.by_user.get(user.name.as_str()).into_iter().chain(by_group);
        let mut places: Vec<(usize, usize)> = places.flatten().copied().collect();
        places.sort_unstable();
        places.dedup_by_key(|(binding, _)| *binding);
        // Places were made from this very list.
        places.into_iter().filter_map(|(binding, subject)| {
            let binding = &**self.list.get(binding)?;
            Some(Source { binding, subject: binding.subjects.get(subject)? })
        })
    }
}

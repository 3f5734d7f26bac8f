//! What FlowSchemas say, and which of them a request matches.

use std::sync::Arc;

use croft_meta::object;
use serde_json::Value;

use super::level::{CATCH_ALL, EXEMPT, Levels};
use crate::auth::MASTERS;
use crate::request::RequestInfo;
use crate::user::UserInfo;

/// In the order in which they are tried.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    list: Vec<Arc<Schema>>,
    /// For administrators, whatever else is written.
    exempt: Option<Arc<Schema>>,
    /// For whatever matches none.
    last: Option<Arc<Schema>>,
}

#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) name: Box<str>,
    pub(super) uid: String,
    pub(super) level: Box<str>,
    pub(super) level_uid: String,
    precedence: i64,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Distinguisher {
    #[default]
    None,
    ByUser,
    ByNamespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

const ANY: &str = "*";

impl Schemas {
    /// Those whose level is there. The two that always are stand in for themselves where they were deleted.
    pub(super) fn of(objects: impl Iterator<Item = Value>, levels: &Levels) -> Self {
        let mut list: Vec<Arc<Schema>> =
            objects.filter_map(|object| Schema::of(&object, levels)).map(Arc::new).collect();
        list.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        let own = |name: &str| {
            let known = list.iter().find(|schema| &*schema.name == name && &*schema.level == name).cloned();
            let level_uid = levels.get(name).map(|level| level.uid.clone()).unwrap_or_default();
            let implied = || Schema { name: name.into(), level: name.into(), level_uid, ..Schema::default() };
            Some(known.unwrap_or_else(|| Arc::new(implied())))
        };
        let (exempt, last) = (own(EXEMPT), own(CATCH_ALL));
        Self { list, exempt, last }
    }

    pub(super) fn find(&self, user: &UserInfo, info: &RequestInfo) -> Arc<Schema> {
        let own = if user.is_member_of(MASTERS) { &self.exempt } else { &None };
        let found = own.as_ref().or_else(|| self.list.iter().find(|schema| schema.matches(user, info)));
        found.or(self.last.as_ref()).cloned().unwrap_or_default()
    }
}

impl Schema {
    fn of(object: &Value, levels: &Levels) -> Option<Self> {
        let spec = &object["spec"];
        let level = spec["priorityLevelConfiguration"]["name"].as_str()?;
        let distinguisher = match spec["distinguisherMethod"]["type"].as_str() {
            Some("ByUser") => Distinguisher::ByUser,
            Some("ByNamespace") => Distinguisher::ByNamespace,
            _ => Distinguisher::None,
        };
        Some(Self {
            name: object::name(object).into(),
            uid: object::uid(object).to_owned(),
            level: level.into(),
            level_uid: levels.get(level)?.uid.clone(),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            distinguisher,
            rules: items(&spec["rules"]).map(Rule::of).collect(),
        })
    }

    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, info))
    }

    /// What tells the flow of this request from others of the schema.
    pub(super) fn flow<'a>(&self, user: &'a UserInfo, info: &'a RequestInfo) -> &'a str {
        match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::ByUser => &user.name,
            Distinguisher::ByNamespace => &info.namespace,
        }
    }
}

impl Rule {
    fn of(rule: &Value) -> Self {
        Self {
            subjects: items(&rule["subjects"]).filter_map(Subject::of).collect(),
            resources: items(&rule["resourceRules"]).map(ResourceRule::of).collect(),
            paths: items(&rule["nonResourceRules"]).map(PathRule::of).collect(),
        }
    }

    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        if !self.subjects.iter().any(|subject| subject.is(user)) {
            return false;
        }
        if info.is_resource {
            self.resources.iter().any(|rule| rule.matches(info))
        } else {
            self.paths.iter().any(|rule| rule.matches(info))
        }
    }
}

impl Subject {
    fn of(subject: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match subject["kind"].as_str()? {
            "User" => Some(Self::User(text(&subject["user"]["name"]))),
            "Group" => Some(Self::Group(text(&subject["group"]["name"]))),
            "ServiceAccount" => {
                let account = &subject["serviceAccount"];
                Some(Self::ServiceAccount { namespace: text(&account["namespace"]), name: text(&account["name"]) })
            }
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => name == ANY || *name == user.name,
            Self::Group(name) => name == ANY || user.is_member_of(name),
            Self::ServiceAccount { namespace, name } => {
                let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                account.is_some_and(|(found, account)| found == namespace && (name == ANY || name == account))
            }
        }
    }
}

impl ResourceRule {
    fn of(rule: &Value) -> Self {
        Self {
            verbs: strings(&rule["verbs"]),
            groups: strings(&rule["apiGroups"]),
            resources: strings(&rule["resources"]),
            cluster_scope: rule["clusterScope"] == true,
            namespaces: strings(&rule["namespaces"]),
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let resource = match info.subresource.as_str() {
            "" => info.resource.clone(),
            subresource => format!("{}/{subresource}", info.resource),
        };
        let is_in_scope =
            if info.namespace.is_empty() { self.cluster_scope } else { has(&self.namespaces, &info.namespace) };
        is_in_scope && has(&self.verbs, info.verb) && has(&self.groups, &info.group) && has(&self.resources, &resource)
    }
}

impl PathRule {
    fn of(rule: &Value) -> Self {
        Self { verbs: strings(&rule["verbs"]), paths: strings(&rule["nonResourceURLs"]) }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let covers = |pattern: &String| match pattern.strip_suffix(ANY) {
            Some(start) => info.path.starts_with(start),
            None => info.path == *pattern,
        };
        has(&self.verbs, info.verb) && self.paths.iter().any(covers)
    }
}

fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|value| value == ANY || value == wanted)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn strings(value: &Value) -> Vec<String> {
    items(value).filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Query;

    fn schema(name: &str, precedence: i64, level: &str, rule: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level}, "distinguisherMethod": {"type": "ByNamespace"}, "rules": [rule]}})
    }

    fn request(method: &str, path: &str) -> RequestInfo {
        RequestInfo::parse(&method.parse().unwrap(), path, &Query::default())
    }

    #[test]
    fn the_first_that_matches_counts() {
        let levels = Levels::of(
            ["low", "high"]
                .map(|name| json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {}}}))
                .into_iter(),
        );
        let all =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
        let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
        let account = json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "*"}});
        let status = json!({"verbs": ["patch"], "apiGroups": [""], "resources": ["pods/status"], "namespaces": ["a"]});
        let health = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]});
        let schemas = Schemas::of(
            [
                schema("everyone", 9000, "low", &json!({"subjects": [group("*")], "resourceRules": [all]})),
                schema("status", 500, "high", &json!({"subjects": [user("anna")], "resourceRules": [status]})),
                schema("accounts", 600, "high", &json!({"subjects": [account], "resourceRules": [all]})),
                schema("probes", 2, EXEMPT, &json!({"subjects": [group("*")], "nonResourceRules": [health]})),
                schema("nowhere", 1, "no-such-level", &json!({"subjects": [group("*")], "resourceRules": [all]})),
            ]
            .into_iter(),
            &levels,
        );
        let anna = UserInfo::new("anna", &["system:authenticated"]);
        let root = UserInfo::new("root", &[MASTERS]);
        let robot = UserInfo::new("system:serviceaccount:a:robot", &["system:authenticated"]);
        for (who, method, path, expected, flow) in [
            (&anna, "PATCH", "/api/v1/namespaces/a/pods/p/status", "status", "a"),
            (&anna, "PATCH", "/api/v1/namespaces/b/pods/p/status", "everyone", "b"),
            (&anna, "PATCH", "/api/v1/namespaces/a/pods/p", "everyone", "a"),
            (&anna, "GET", "/api/v1/nodes", "everyone", ""),
            (&robot, "GET", "/api/v1/nodes", "accounts", ""),
            (&anna, "GET", "/healthz", "probes", ""),
            (&anna, "GET", "/logs/x", "probes", ""),
            (&anna, "GET", "/version", CATCH_ALL, ""),
            (&root, "GET", "/api/v1/nodes", EXEMPT, ""),
        ] {
            let info = request(method, path);
            let found = schemas.find(who, &info);
            assert_eq!((&*found.name, found.flow(who, &info)), (expected, flow), "{} {method} {path}", who.name);
        }
    }
}

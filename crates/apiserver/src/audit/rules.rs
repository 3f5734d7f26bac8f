//! A policy as `audit.k8s.io/v1` has it: rules of which the first that fits a request says how much of it is written down.

use super::about::Asked;
use super::event::{ObjectRef, Stage};
use crate::user::UserInfo;

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    None,
    Metadata,
    /// With what was sent.
    Request,
    /// With what was answered as well.
    RequestResponse,
}

impl Level {
    pub(super) const NAMES: [&'static str; 4] = ["Metadata", "None", "Request", "RequestResponse"];

    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "None" => Some(Self::None),
            "Metadata" => Some(Self::Metadata),
            "Request" => Some(Self::Request),
            "RequestResponse" => Some(Self::RequestResponse),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub(super) list: Vec<Rule>,
    pub(super) omit_stages: Vec<Stage>,
    pub(super) omit_managed_fields: bool,
}

/// Empty lists fit everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) level: Level,
    pub(super) users: Vec<String>,
    pub(super) user_groups: Vec<String>,
    pub(super) verbs: Vec<String>,
    pub(super) resources: Vec<GroupResources>,
    pub(super) namespaces: Vec<String>,
    pub(super) non_resource_urls: Vec<String>,
    pub(super) omit_stages: Vec<Stage>,
    /// None for what the policy says.
    pub(super) omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupResources {
    pub(super) group: String,
    /// `pods`, `pods/log`, `pods/*`, `*/scale`, `*`.
    pub(super) resources: Vec<String>,
    pub(super) resource_names: Vec<String>,
}

/// What becomes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) level: Level,
    omit_stages: Vec<Stage>,
    pub(super) omit_managed_fields: bool,
}

impl Plan {
    pub(super) fn has(&self, stage: Stage) -> bool {
        self.level > Level::None && !self.omit_stages.contains(&stage)
    }
}

impl Rules {
    /// `user` is who has proved to be somebody; nobody else fits a rule about users.
    pub(super) fn plan(&self, asked: &Asked, user: Option<&UserInfo>) -> Plan {
        let Some(rule) = self.list.iter().find(|rule| rule.fits(asked, user)) else {
            return Plan { level: Level::None, omit_stages: Vec::new(), omit_managed_fields: self.omit_managed_fields };
        };
        Plan {
            level: rule.level,
            omit_stages: self.omit_stages.iter().chain(&rule.omit_stages).copied().collect(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn fits(&self, asked: &Asked, user: Option<&UserInfo>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
        let is_user = self.users.is_empty() || user.is_some_and(|user| has(&self.users, &user.name));
        let is_member = self.user_groups.is_empty()
            || user.is_some_and(|user| user.groups.iter().any(|group| has(&self.user_groups, group)));
        if !is_user || !is_member || !(self.verbs.is_empty() || has(&self.verbs, asked.verb)) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return asked.object.as_ref().is_some_and(|object| self.fits_object(object));
        }
        if !self.non_resource_urls.is_empty() {
            return asked.object.is_none() && self.non_resource_urls.iter().any(|url| fits_path(url, &asked.path));
        }
        true
    }

    fn fits_object(&self, object: &ObjectRef) -> bool {
        if !self.namespaces.is_empty() && !self.namespaces.contains(&object.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|resources| resources.fits(object))
    }
}

impl GroupResources {
    fn fits(&self, object: &ObjectRef) -> bool {
        if self.group != object.api_group {
            return false;
        }
        let is_named = self.resource_names.is_empty() || self.resource_names.contains(&object.name);
        self.resources.is_empty() || (is_named && self.resources.iter().any(|one| fits_resource(one, object)))
    }
}

fn fits_resource(wanted: &str, object: &ObjectRef) -> bool {
    let (resource, subresource) = (object.resource.as_str(), object.subresource.as_str());
    if wanted == "*" {
        return true;
    }
    match wanted.split_once('/') {
        None => subresource.is_empty() && wanted == resource,
        Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
        // Upstream takes this for the resource itself as well.
        Some((of, "*")) => of == resource,
        Some((of, sub)) => of == resource && sub == subresource,
    }
}

fn fits_path(wanted: &str, path: &str) -> bool {
    wanted == "*" || wanted == path || wanted.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::super::about::of_resource;
    use super::super::policy_file;
    use super::*;
    use crate::request::{Query, RequestInfo};

    fn asked(method: &str, path: &str) -> Asked {
        let info = RequestInfo::parse(&method.parse().unwrap(), path, &Query::default());
        let object = info.is_resource.then(|| of_resource(&info));
        Asked { verb: info.verb, object, path: path.to_owned(), ..Asked::default() }
    }

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: ["watch"]
- level: RequestResponse
  resources: [{group: "", resources: ["pods"]}]
  omitManagedFields: false
- level: Metadata
  resources: [{group: "", resources: ["pods/log", "pods/status"]}]
- level: None
  resources: [{group: "", resources: ["configmaps"], resourceNames: ["leader"]}]
- level: Request
  resources: [{group: "", resources: ["configmaps"]}]
  namespaces: ["kube-system"]
  omitStages: [ResponseStarted]
- level: Metadata
  resources: [{group: "apps", resources: ["*/scale"]}, {group: "batch", resources: ["jobs/*"]}, {group: "x.io"}]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", "/version"]
- level: Metadata
  namespaces: [""]
"#;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rules = policy_file::parse(POLICY).unwrap();
        let ann = UserInfo::new("ann", &["system:authenticated"]);
        for (method, path, user, expected) in [
            ("POST", "/api/v1/namespaces/a/pods", Some(&ann), Level::RequestResponse),
            ("GET", "/api/v1/namespaces/a/pods/p/log", Some(&ann), Level::Metadata),
            ("GET", "/api/v1/namespaces/a/pods/p/exec", Some(&ann), Level::None),
            ("PUT", "/api/v1/namespaces/kube-system/configmaps/leader", Some(&ann), Level::None),
            ("PUT", "/api/v1/namespaces/kube-system/configmaps/other", Some(&ann), Level::Request),
            ("PUT", "/api/v1/namespaces/a/configmaps/other", Some(&ann), Level::None),
            ("PUT", "/apis/apps/v1/namespaces/a/deployments/d/scale", Some(&ann), Level::Metadata),
            ("PUT", "/apis/apps/v1/namespaces/a/deployments/d", Some(&ann), Level::None),
            ("PUT", "/apis/batch/v1/namespaces/a/jobs/j/status", Some(&ann), Level::Metadata),
            ("PUT", "/apis/x.io/v1/namespaces/a/things/t/status", Some(&ann), Level::Metadata),
            ("GET", "/apis", Some(&ann), Level::None),
            ("GET", "/api/v1/nodes/n", Some(&ann), Level::Metadata),
            ("GET", "/healthz", None, Level::None),
        ] {
            assert_eq!(rules.plan(&asked(method, path), user).level, expected, "{method} {path}");
        }
        let proxy = UserInfo::new("system:kube-proxy", &[]);
        let watch = Asked { verb: "watch", ..asked("GET", "/api/v1/pods") };
        assert_eq!(rules.plan(&watch, Some(&proxy)).level, Level::None);
        assert_eq!(rules.plan(&watch, None).level, Level::RequestResponse, "nobody has proved to be the proxy");
    }

    #[test]
    fn stages_and_managed_fields_are_left_out_as_it_is_said() {
        let rules = policy_file::parse(POLICY).unwrap();
        let pods = rules.plan(&asked("POST", "/api/v1/namespaces/a/pods"), None);
        assert!(!pods.omit_managed_fields && !pods.has(Stage::RequestReceived) && pods.has(Stage::ResponseStarted));
        let maps = rules.plan(&asked("PUT", "/api/v1/namespaces/kube-system/configmaps/m"), None);
        assert!(maps.omit_managed_fields && !maps.has(Stage::ResponseStarted) && maps.has(Stage::ResponseComplete));
        let nothing = rules.plan(&asked("GET", "/healthz"), None);
        assert!(!nothing.has(Stage::ResponseComplete));
    }
}

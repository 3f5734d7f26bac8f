//! Which kinds the server has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::header::ACCEPT;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde::Deserialize;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) is_namespaced: bool,
    verbs: Vec<Box<str>>,
}

impl Kind {
    /// A kind of which only its place is known.
    pub(crate) fn new(resource: ApiResource, is_namespaced: bool) -> Self {
        Self { resource, is_namespaced, verbs: Vec::new() }
    }

    pub(crate) fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| **v == *verb)
    }

    /// `configmaps`, `deployments.apps`; also the name of a custom kind's definition.
    pub(crate) fn group_resource(&self) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.resource.group == group && self.resource.plural == plural
    }

    /// Where an object lives; `namespace` does not matter to cluster-wide kinds.
    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.is_namespaced && !namespace.is_empty() {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }
}

/// All kinds of a server.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    /// Each resource once, in the version its group prefers.
    pub(crate) preferred: Vec<Arc<Kind>>,
    by_type: HashMap<(Box<str>, Box<str>), Arc<Kind>>,
    /// Groups and versions of servers that are not there just now: nobody knows what they hold.
    pub(crate) stale: Vec<String>,
}

impl Kinds {
    pub(crate) async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let mut kinds = Self::default();
        for path in ["/api", "/apis"] {
            let request = http::Request::get(path).header(ACCEPT, AGGREGATED).body(Vec::new());
            let groups: Groups = client.request(request.map_err(kube::Error::HttpError)?).await?;
            kinds.add(groups);
        }
        Ok(kinds)
    }

    /// Any version that is served will do: references may name an old one.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_type.get(&(api_version.into(), kind.into()))
    }

    fn add(&mut self, groups: Groups) {
        let mut listed = HashSet::new();
        for group in groups.items {
            let name = group.metadata.name;
            for version in group.versions {
                if version.freshness == "Stale" {
                    self.stale.push(format!("{name}/{}", version.name));
                    continue;
                }
                for found in version.resources {
                    let is_first = listed.insert((name.clone(), found.resource.clone()));
                    let Some(kind) = found.into_kind(&name, &version.name) else { continue };
                    let kind = Arc::new(kind);
                    let api_version = kind.resource.api_version.as_str().into();
                    self.by_type.insert((api_version, kind.resource.kind.as_str().into()), Arc::clone(&kind));
                    if is_first {
                        self.preferred.push(kind);
                    }
                }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Groups {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<Version>,
}

/// The core group has none.
#[derive(Debug, Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    #[serde(rename = "version")]
    name: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<Found>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<Box<str>>,
}

#[derive(Debug, Deserialize)]
struct ResponseKind {
    kind: String,
}

impl Found {
    fn into_kind(self, group: &str, version: &str) -> Option<Kind> {
        let kind = self.response_kind?.kind;
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version,
            kind,
            plural: self.resource,
        };
        Some(Kind { resource, is_namespaced: self.scope == "Namespaced", verbs: self.verbs })
    }
}

/// A built-in resource whose place everybody knows.
pub(crate) fn builtin(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn kinds(groups: serde_json::Value) -> Kinds {
        let mut kinds = Kinds::default();
        kinds.add(serde_json::from_value(groups).unwrap());
        kinds
    }

    #[test]
    fn the_first_version_is_preferred_and_all_are_known() {
        let resource = |version: &str| {
            json!({"version": version, "resources": [{
                "resource": "things", "scope": "Namespaced", "verbs": ["list", "delete"],
                "responseKind": {"group": "", "version": "", "kind": "Thing"},
            }]})
        };
        let group = json!({"metadata": {"name": "example.com"}, "versions": [resource("v1"), resource("v1beta1")]});
        let kinds = kinds(json!({"items": [group]}));
        assert_eq!(kinds.preferred.len(), 1);
        assert_eq!(kinds.preferred[0].resource.api_version, "example.com/v1");
        assert_eq!(kinds.preferred[0].group_resource(), "things.example.com");
        assert!(kinds.preferred[0].is_namespaced && kinds.preferred[0].supports("delete"));
        assert!(kinds.of("example.com/v1beta1", "Thing").is_some());
        assert!(kinds.of("example.com/v2", "Thing").is_none());
    }
}

//! What is served right now: the built-in kinds plus those of established CustomResourceDefinitions.
//!
//! A catalog is immutable; a change of the CRDs swaps in a new one. Requests in flight keep theirs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use croft_api::{Resource, Version};
use croft_meta::{Gvk, Revision};

use crate::conversion::Conversion;
use crate::{kubevirt, upload, usage};

/// One resource in one of its versions: what a URL names.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) resource: Arc<Resource>,
    version: usize,
    /// The webhook that converts its objects between versions, if they differ in more than the name.
    pub(crate) conversion: Option<Arc<Conversion>>,
}

impl Served {
    pub(crate) fn version(&self) -> &Version {
        &self.resource.versions[self.version]
    }

    /// The same resource in the version that it is stored in, if that is served.
    pub(crate) fn in_storage_version(&self) -> Option<Self> {
        let version =
            self.resource.versions.iter().position(|version| version.name == self.resource.storage_version)?;
        Some(Self { version, ..self.clone() })
    }

    pub(crate) fn gvk(&self) -> Gvk {
        self.resource.gvk(&self.version().name)
    }

    pub(crate) fn group(&self) -> &str {
        &self.resource.group
    }

    pub(crate) fn plural(&self) -> &str {
        &self.resource.names.plural
    }

    pub(crate) fn kind(&self) -> &str {
        &self.resource.names.kind
    }
}

/// One group with its versions, best first.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) versions: Vec<String>,
}

/// A CustomResourceDefinition, as the catalog was made from it.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) revision: Revision,
    pub(crate) uid: String,
    /// It is being deleted.
    pub(crate) is_going: bool,
    /// `None` if it is not served.
    pub(crate) resource: Option<Arc<Resource>>,
    /// The kind in the version that it is stored in, if that one is not served.
    pub(crate) unserved: Option<Arc<Resource>>,
    pub(crate) conversion: Option<Arc<Conversion>>,
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// By name.
    definitions: BTreeMap<String, Definition>,
    resources: Vec<Arc<Resource>>,
    by_path: HashMap<(String, String, String), Served>,
    by_kind: HashMap<Gvk, Served>,
    unserved: HashMap<(String, String, String), Served>,
    groups: Vec<Group>,
}

impl Catalog {
    /// Earlier resources win where two claim the same name, so that a CRD cannot replace a built-in kind.
    pub(crate) fn new(
        builtin: impl IntoIterator<Item = Arc<Resource>>,
        definitions: BTreeMap<String, Definition>,
    ) -> Self {
        let mut catalog = Self::default();
        for resource in builtin {
            catalog.add(resource, None);
        }
        for definition in definitions.values() {
            if let Some(resource) = &definition.resource {
                catalog.add(Arc::clone(resource), definition.conversion.as_ref());
            }
            if let Some(resource) = &definition.unserved {
                let served =
                    Served { resource: Arc::clone(resource), version: 0, conversion: definition.conversion.clone() };
                let path = (resource.group.clone(), served.version().name.clone(), resource.names.plural.clone());
                catalog.unserved.insert(path, served);
            }
        }
        catalog.definitions = definitions;
        // Groups that are answered rather than stored have no resources here, but clients must find them.
        for (name, versions) in [kubevirt::about::group(), upload::group(), usage::group()] {
            let versions = versions.iter().map(ToString::to_string).collect();
            catalog.groups.push(Group { name: name.to_owned(), versions });
        }
        for group in &mut catalog.groups {
            // The core and built-in groups list their versions in the table's order, which is already best first.
            group.versions.sort_by(|a, b| croft_meta::gvk::compare_versions(b, a));
        }
        catalog
    }

    fn add(&mut self, resource: Arc<Resource>, conversion: Option<&Arc<Conversion>>) {
        for (index, version) in resource.versions.iter().enumerate() {
            let path = (resource.group.clone(), version.name.clone(), resource.names.plural.clone());
            let served = Served { resource: Arc::clone(&resource), version: index, conversion: conversion.cloned() };
            self.by_kind.entry(served.gvk()).or_insert_with(|| served.clone());
            self.by_path.entry(path).or_insert(served);
            let group = if let Some(group) = self.groups.iter_mut().find(|g| g.name == resource.group) {
                group
            } else {
                self.groups.push(Group { name: resource.group.clone(), versions: Vec::new() });
                // Pushed in the line above.
                let last = self.groups.len() - 1;
                &mut self.groups[last]
            };
            if !group.versions.contains(&version.name) {
                group.versions.push(version.name.clone());
            }
        }
        self.resources.push(resource);
    }

    pub(crate) fn definition(&self, name: &str) -> Option<&Definition> {
        self.definitions.get(name)
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Served> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// A custom kind in the version that it is stored in, which no user is served: what is left of it can be removed all the same.
    pub(crate) fn find_unserved(&self, group: &str, version: &str, plural: &str) -> Option<&Served> {
        self.unserved.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn find_kind(&self, gvk: &Gvk) -> Option<&Served> {
        self.by_kind.get(gvk)
    }

    /// All resources, in discovery order.
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// Resources served in one group and version, in discovery order.
    pub(crate) fn in_version<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Served> + 'a {
        self.resources
            .iter()
            .filter(move |r| r.group == group)
            .filter_map(move |r| self.find(group, version, &r.names.plural))
    }

    /// The core group (`""`) first, then the others in discovery order.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|g| g.name == name)
    }
}

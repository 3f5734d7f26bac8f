//! What can be done where: the paths and operations of every resource, in a form of their own that both OpenAPI
//! versions are written from.

use croft_api::Subresource;
use croft_meta::{GroupVersion, Gvk};

use super::parameters::{self as parameter, Parameter};
use crate::catalog::{Catalog, Served};
use crate::connections;

const JSON_YAML: &[&str] = &["application/json", "application/yaml"];
const ANY: &[&str] = &["*/*"];
const STREAMS: &[&str] = &["application/json", "application/yaml", "application/json;stream=watch"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// The type of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// An object of this kind; which definition it has is looked up when the document is written.
    Kind(Gvk),
    /// `io.k8s.apimachinery.pkg.apis.meta.v1.<name>`.
    Meta(&'static str),
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) description: String,
    pub(super) action: Option<(&'static str, Gvk)>,
    pub(super) consumes: &'static [&'static str],
    pub(super) produces: &'static [&'static str],
    pub(super) parameters: Vec<Parameter>,
    /// The body's type, and whether it must be there.
    pub(super) body: Option<(Type, bool)>,
    /// Success codes, all with a body of this type.
    pub(super) codes: &'static [u16],
    pub(super) answer: Type,
}

#[derive(Debug)]
pub(super) struct PathItem {
    pub(super) path: String,
    /// What all operations have in common.
    pub(super) parameters: Vec<Parameter>,
    pub(super) operations: Vec<Operation>,
}

/// A document of the v3 index: `api`, `apis`, `api/v1`, `apis/apps`, `apis/apps/v1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    Core,
    Groups,
    Group(String),
    Version(GroupVersion),
}

impl Part {
    /// All parts of a catalog. Groups of custom resources alone have no discovery operations, as upstream.
    pub(super) fn all(catalog: &Catalog) -> Vec<Self> {
        let mut parts = vec![Self::Core, Self::Groups];
        for group in catalog.groups() {
            let is_custom = catalog.resources().iter().filter(|r| r.group == group.name).all(|r| r.is_custom);
            if !group.name.is_empty() && !is_custom {
                parts.push(Self::Group(group.name.clone()));
            }
            parts.extend(group.versions.iter().map(|v| Self::Version(GroupVersion::new(&group.name, v))));
        }
        parts
    }

    /// Its name in the index, which is its path below `/openapi/v3/` too.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Core => "api".to_owned(),
            Self::Groups => "apis".to_owned(),
            Self::Group(group) => format!("apis/{group}"),
            Self::Version(gv) if gv.group.is_empty() => format!("api/{}", gv.version),
            Self::Version(gv) => format!("apis/{gv}"),
        }
    }

    pub(super) fn paths(&self, catalog: &Catalog) -> Vec<PathItem> {
        let Self::Version(gv) = self else { return vec![self.discovery()] };
        let mut served: Vec<&Served> = catalog.in_version(&gv.group, &gv.version).collect();
        served.sort_by(|a, b| a.plural().cmp(b.plural()));
        let mut paths = Vec::new();
        // A group without kinds is answered rather than stored: what it offers is listed, and that is all.
        if served.is_empty() || served.iter().any(|s| !s.resource.is_custom) {
            paths.push(self.discovery());
        }
        paths.extend(served.into_iter().flat_map(|served| resource_paths(served, &self.name())));
        paths
    }

    fn discovery(&self) -> PathItem {
        let (verb_rest, description, answer) = match self {
            Self::Core => ("CoreAPIVersions".to_owned(), "get available API versions", "APIVersions"),
            Self::Groups => ("APIVersions".to_owned(), "get available API versions", "APIGroupList"),
            Self::Group(group) => (format!("{}APIGroup", camel(group, true)), "get information of a group", "APIGroup"),
            Self::Version(gv) => {
                (format!("{}APIResources", version_prefix(gv)), "get available resources", "APIResourceList")
            }
        };
        let tag = match self {
            Self::Core => "core".to_owned(),
            Self::Groups => "apis".to_owned(),
            Self::Group(group) => camel(group, false),
            Self::Version(gv) => tag(gv),
        };
        let operation = Operation {
            method: "get",
            id: format!("get{verb_rest}"),
            tag,
            description: description.to_owned(),
            action: None,
            consumes: JSON_YAML,
            produces: JSON_YAML,
            parameters: Vec::new(),
            body: None,
            codes: &[200],
            answer: Type::Meta(answer),
        };
        PathItem { path: format!("/{}/", self.name()), parameters: Vec::new(), operations: vec![operation] }
    }
}

/// `rbac.authorization.k8s.io` is `RbacAuthorization` in operation ids and `rbacAuthorization` in tags.
fn camel(group: &str, capitalize_first: bool) -> String {
    let group = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    let mut upper = capitalize_first;
    let mut out = String::with_capacity(group.len());
    for c in group.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(if upper { c.to_ascii_uppercase() } else { c });
            upper = false;
        } else {
            upper = true;
        }
    }
    out
}

fn tag(gv: &GroupVersion) -> String {
    format!("{}_{}", camel(&gv.group, false), camel(&gv.version, false))
}

fn version_prefix(gv: &GroupVersion) -> String {
    format!("{}{}", camel(&gv.group, true), camel(&gv.version, true))
}

/// A resource while its operations are made.
struct Maker<'a> {
    served: &'a Served,
    gvk: Gvk,
    tag: String,
    prefix: String,
    /// `NamespacedDeployment`.
    noun: String,
}

fn resource_paths(served: &Served, root: &str) -> Vec<PathItem> {
    let gvk = served.gvk();
    let gv = gvk.group_version();
    let namespaced = served.resource.is_namespaced();
    let noun = format!("{}{}", if namespaced { "Namespaced" } else { "" }, gvk.kind);
    let maker = Maker { served, gvk, tag: tag(&gv), prefix: version_prefix(&gv), noun };
    let (plural, kind) = (served.plural(), served.kind());
    let scope = if namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{root}/{scope}{plural}");
    let has = |verb: &str| served.resource.verbs.contains(&verb);
    let mut paths = Vec::new();
    if namespaced && has("list") {
        paths.push(item(format!("/{root}/{plural}"), kind, vec![maker.list(true)]));
    }
    paths.push(item(collection.clone(), kind, maker.collection()));
    paths.push(item(format!("{collection}/{{name}}"), kind, maker.object()));
    // What a connection carries is of no type that could be described.
    let subresources = served.version().subresources.iter();
    for subresource in subresources.filter(|subresource| !connections::is_options(&subresource.kind)) {
        let path = format!("{collection}/{{name}}/{}", subresource.name);
        let named = if served.resource.is_custom { kind } else { &subresource.kind.kind };
        paths.push(item(path, named, maker.subresource(subresource)));
    }
    paths.retain(|item| !item.operations.is_empty());
    paths
}

impl Maker<'_> {
    fn has(&self, verb: &str) -> bool {
        self.served.resource.verbs.contains(&verb)
    }

    fn is_custom(&self) -> bool {
        self.served.resource.is_custom
    }

    /// Fills in what every operation has. `what` is the middle of the id: `list` + `AppsV1` + `NamespacedDeployment`.
    fn operation(&self, method: &'static str, verb: &str, what: &str, action: (&'static str, Gvk)) -> Operation {
        let answer = Type::Kind(action.1.clone());
        Operation {
            method,
            id: format!("{verb}{}{what}", self.prefix),
            tag: self.tag.clone(),
            description: String::new(),
            action: Some(action),
            consumes: if self.is_custom() { JSON_YAML } else { ANY },
            produces: JSON_YAML,
            parameters: Vec::new(),
            body: None,
            codes: &[200],
            answer,
        }
    }

    fn list(&self, everywhere: bool) -> Operation {
        let what = if everywhere { format!("{}ForAllNamespaces", self.gvk.kind) } else { self.noun.clone() };
        let verb = if self.has("watch") && !self.is_custom() { "list or watch" } else { "list" };
        let list = Gvk { kind: self.served.resource.names.list_kind.clone(), ..self.gvk.clone() };
        Operation {
            description: format!("{verb} objects of kind {}", self.gvk.kind),
            produces: if self.has("watch") && !self.is_custom() { STREAMS } else { JSON_YAML },
            parameters: parameter::LIST.to_vec(),
            answer: Type::Kind(list),
            ..self.operation("get", "list", &what, ("list", self.gvk.clone()))
        }
    }

    fn collection(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        if self.has("list") {
            operations.push(self.list(false));
        }
        if self.has("create") {
            operations.push(self.create(&self.noun, &self.gvk, format!("create {}", with_article(&self.gvk.kind))));
        }
        if self.has("deletecollection") {
            let what = format!("Collection{}", self.noun);
            // Upstream describes a custom collection's deletion by what it lists alone.
            let (parameters, body) = if self.is_custom() {
                (parameter::LIST, None)
            } else {
                (parameter::DELETE_COLLECTION, Some((Type::Meta("DeleteOptions"), false)))
            };
            operations.push(Operation {
                description: format!("delete collection of {}", self.gvk.kind),
                parameters: parameters.to_vec(),
                body,
                answer: Type::Meta("Status"),
                ..self.operation("delete", "delete", &what, ("deletecollection", self.gvk.clone()))
            });
        }
        operations
    }

    fn object(&self) -> Vec<Operation> {
        let the_object = format!("the specified {}", self.gvk.kind);
        let mut operations = self.read_and_write(&self.noun, &self.gvk, &the_object, &self.served.resource.verbs);
        if self.has("delete") {
            operations.push(Operation {
                description: format!("delete {}", with_article(&self.gvk.kind)),
                parameters: parameter::DELETE.to_vec(),
                body: Some((Type::Meta("DeleteOptions"), false)),
                answer: Type::Meta("Status"),
                codes: &[200, 202],
                ..self.operation("delete", "delete", &self.noun, ("delete", self.gvk.clone()))
            });
        }
        operations
    }

    fn subresource(&self, subresource: &Subresource) -> Vec<Operation> {
        let what = format!("{}{}", self.noun, camel(&subresource.name, true));
        let of = format!("{} of the specified {}", subresource.name, self.gvk.kind);
        // Operations on a custom resource's scale are filed under the resource itself.
        let mut operations = self.read_and_write(&what, &subresource.kind, &of, &subresource.verbs);
        if self.is_custom() {
            for operation in &mut operations {
                operation.action = operation.action.take().map(|(action, _)| (action, self.gvk.clone()));
            }
        }
        if subresource.verbs.contains(&"create") {
            let description = format!("create {} of {}", subresource.name, with_article(&self.gvk.kind));
            operations.push(self.create(&what, &subresource.kind, description));
        }
        operations
    }

    fn create(&self, what: &str, kind: &Gvk, description: String) -> Operation {
        Operation {
            description,
            parameters: parameter::WRITE.to_vec(),
            body: Some((Type::Kind(kind.clone()), true)),
            codes: &[200, 201, 202],
            ..self.operation("post", "create", what, ("post", kind.clone()))
        }
    }

    fn read_and_write(&self, what: &str, kind: &Gvk, the_object: &str, verbs: &[&str]) -> Vec<Operation> {
        let mut operations = Vec::new();
        if verbs.contains(&"get") {
            operations.push(Operation {
                description: format!("read {the_object}"),
                parameters: if self.is_custom() { parameter::GET.to_vec() } else { Vec::new() },
                ..self.operation("get", "read", what, ("get", kind.clone()))
            });
        }
        if verbs.contains(&"update") {
            operations.push(Operation {
                description: format!("replace {the_object}"),
                parameters: parameter::WRITE.to_vec(),
                body: Some((Type::Kind(kind.clone()), true)),
                codes: &[200, 201],
                ..self.operation("put", "replace", what, ("put", kind.clone()))
            });
        }
        if verbs.contains(&"patch") {
            operations.push(Operation {
                description: format!("partially update {the_object}"),
                consumes: if self.is_custom() { CUSTOM_PATCHES } else { PATCHES },
                parameters: parameter::PATCH.to_vec(),
                body: Some((Type::Meta("Patch"), true)),
                codes: if self.is_custom() { &[200] } else { &[200, 201] },
                ..self.operation("patch", "patch", what, ("patch", kind.clone()))
            });
        }
        operations
    }
}

/// Moves to the path what all its operations have in common, besides the parameters of the path itself.
fn item(path: String, kind: &str, mut operations: Vec<Operation>) -> PathItem {
    let mut parameters = vec![parameter::PRETTY];
    if path.contains("{namespace}") {
        parameters.push(parameter::NAMESPACE);
    }
    if path.contains("{name}") {
        parameters.push(parameter::name(kind));
    }
    let mut shared = operations.first().map(|o| o.parameters.clone()).unwrap_or_default();
    shared.retain(|p| operations.iter().all(|o| o.parameters.contains(p)));
    for operation in &mut operations {
        operation.parameters.retain(|p| !shared.contains(p));
    }
    parameters.extend(shared);
    parameters.sort_by_key(|p| p.name);
    PathItem { path, parameters, operations }
}

/// `a Pod`, `an Event`, and `Endpoints` without one.
fn with_article(kind: &str) -> String {
    if kind.ends_with('s') && !kind.ends_with("ss") {
        return kind.to_owned();
    }
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {kind}")
}

//! What is known of values before there are any: enough to tell most mistakes when a policy is created.

/// The names of libraries that functions are called by.
pub(super) const LIBRARIES: [&str; 9] =
    ["sets", "optional", "base64", "cel", "format", "jsonpatch", "strings", "ip", "semver"];

/// Rules of schemas are not checked for what Kubernetes' libraries do not have.
const MORE_LIBRARIES: [&str; 2] = ["math", "lists"];

/// Do functions stand behind this name?
pub(crate) fn is_library(name: &str) -> bool {
    LIBRARIES.contains(&name) || MORE_LIBRARIES.contains(&name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    /// Anything: known only when there is a value.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    List,
    Map,
    Optional,
    Type,
    Timestamp,
    Duration,
    /// `Object{…}`.
    Object,
    /// `Object.spec{…}` and the like.
    Part,
    JsonPatch,
    Patches,
    Variables,
    Fields(&'static Fields),
    Authorizer,
    GroupCheck,
    ResourceCheck,
    PathCheck,
    Decision,
}

/// A type whose fields are known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) name: &'static str,
    pub(super) fields: &'static [(&'static str, Ty)],
}

pub(super) const REQUEST: Ty = Ty::Fields(&Fields {
    name: "kubernetes.AdmissionRequest",
    fields: &[
        ("kind", KIND),
        ("resource", RESOURCE),
        ("subResource", Ty::String),
        ("requestKind", KIND),
        ("requestResource", RESOURCE),
        ("requestSubResource", Ty::String),
        ("name", Ty::String),
        ("namespace", Ty::String),
        ("operation", Ty::String),
        ("userInfo", USER),
        ("dryRun", Ty::Bool),
        ("options", Ty::Dyn),
    ],
});

const KIND: Ty = Ty::Fields(&Fields {
    name: "kubernetes.GroupVersionKind",
    fields: &[("group", Ty::String), ("version", Ty::String), ("kind", Ty::String)],
});

const RESOURCE: Ty = Ty::Fields(&Fields {
    name: "kubernetes.GroupVersionResource",
    fields: &[("group", Ty::String), ("version", Ty::String), ("resource", Ty::String)],
});

pub(super) const USER: Ty = Ty::Fields(&Fields {
    name: "kubernetes.UserInfo",
    fields: &[("username", Ty::String), ("uid", Ty::String), ("groups", Ty::List), ("extra", Ty::Map)],
});

pub(super) const NAMESPACE: Ty = Ty::Fields(&Fields {
    name: "kubernetes.Namespace",
    fields: &[("metadata", Ty::Dyn), ("spec", Ty::Dyn), ("status", Ty::Dyn)],
});

impl Ty {
    /// As cel-go writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dyn | Self::Variables => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::List => "list(dyn)",
            Self::Map => "map(dyn, dyn)",
            Self::Optional => "optional_type(dyn)",
            Self::Type => "type",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::Object | Self::Part => "Object",
            Self::JsonPatch => "JSONPatch",
            Self::Patches => "list(JSONPatch)",
            Self::Fields(fields) => fields.name,
            Self::Authorizer => "kubernetes.authorization.Authorizer",
            Self::GroupCheck => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            Self::PathCheck => "kubernetes.authorization.PathCheck",
            Self::Decision => "kubernetes.authorization.Decision",
        }
    }

    /// One of the plain types, which never turn out to be another.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Bool | Self::Int | Self::Uint | Self::Double | Self::String | Self::Bytes)
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Can `<`, `==` and the like be between these?
    pub(super) fn compares_with(self, other: Self, is_order: bool) -> bool {
        !self.is_plain() || !other.is_plain() || self == other || (is_order && self.is_number() && other.is_number())
    }

    pub(super) fn is_authorizer(self) -> bool {
        matches!(self, Self::Authorizer | Self::GroupCheck | Self::ResourceCheck | Self::PathCheck | Self::Decision)
    }

    /// What a method of the authorizer, or of what comes of it, yields.
    pub(super) fn authorizer_method(self, method: &str) -> Option<Self> {
        Some(match (self, method) {
            (Self::Authorizer, "path") => Self::PathCheck,
            (Self::Authorizer, "group") => Self::GroupCheck,
            (Self::Authorizer, "serviceAccount") => Self::Authorizer,
            (Self::GroupCheck, "resource")
            | (Self::ResourceCheck, "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector") => {
                Self::ResourceCheck
            }
            (Self::ResourceCheck | Self::PathCheck, "check") => Self::Decision,
            (Self::Decision, "allowed" | "errored") => Self::Bool,
            (Self::Decision, "reason" | "error") => Self::String,
            _ => return None,
        })
    }
}

/// What a function yields, by its name; `None` if there is no such function.
pub(super) fn function(name: &str) -> Option<Ty> {
    Some(match name {
        "size" | "int" => Ty::Int,
        "uint" => Ty::Uint,
        "double" => Ty::Double,
        "string" => Ty::String,
        "bytes" => Ty::Bytes,
        "duration" => Ty::Duration,
        "timestamp" => Ty::Timestamp,
        "type" => Ty::Type,
        "bool" | "matches" | "isQuantity" | "isURL" | "isIP" | "isCIDR" | "isSemver" | "isIPv4" | "isIPv6"
        | "isCIDRv4" | "isCIDRv6" => Ty::Bool,
        "dyn" | "quantity" | "url" | "ip" | "cidr" | "semver" => Ty::Dyn,
        _ => return None,
    })
}

/// What a function of a library yields.
pub(super) fn library_function(library: &str, name: &str) -> Option<Ty> {
    Some(match (library, name) {
        ("optional", "of" | "none" | "ofNonZeroValue") => Ty::Optional,
        ("sets", "contains" | "equivalent" | "intersects") | ("ip", "isCanonical") => Ty::Bool,
        ("base64", "encode") | ("jsonpatch", "escapeKey") | ("strings", "quote") => Ty::String,
        ("base64", "decode") => Ty::Bytes,
        ("cel", "bind")
        | (
            "format",
            "named"
            | "byte"
            | "date"
            | "datetime"
            | "dns1035Label"
            | "dns1035LabelPrefix"
            | "dns1123Label"
            | "dns1123LabelPrefix"
            | "dns1123Subdomain"
            | "dns1123SubdomainPrefix"
            | "labelValue"
            | "qualifiedName"
            | "uri"
            | "uuid",
        ) => Ty::Dyn,
        _ => return None,
    })
}

/// What a method yields, by its name.
pub(super) fn method(name: &str) -> Option<Ty> {
    Some(match name {
        "startsWith"
        | "endsWith"
        | "contains"
        | "matches"
        | "isSorted"
        | "isGreaterThan"
        | "isLessThan"
        | "isInteger"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "containsIP"
        | "containsCIDR"
        | "hasValue"
        | "all"
        | "exists"
        | "existsOne"
        | "exists_one"
        | "allowed"
        | "errored" => Ty::Bool,
        "size" | "compareTo" | "sign" | "asInteger" | "family" | "prefixLength" | "major" | "minor" | "patch"
        | "indexOf" | "lastIndexOf" | "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate"
        | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => Ty::Int,
        "asApproximateFloat" => Ty::Double,
        "find" | "charAt" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim" | "join" | "format"
        | "string" | "getEscapedPath" | "getHost" | "getHostname" | "getPort" | "getScheme" | "reason" | "error" => {
            Ty::String
        }
        "findAll" | "split" | "slice" | "sort" | "flatten" | "distinct" | "transformList" => Ty::List,
        "getQuery" | "transformMap" => Ty::Map,
        "validate" | "optMap" | "or" => Ty::Optional,
        "optFlatMap" | "reverse" | "sum" | "min" | "max" | "first" | "last" | "add" | "sub" | "ip" | "masked"
        | "value" | "orValue" | "path" | "group" | "serviceAccount" | "resource" | "subresource" | "namespace"
        | "name" | "fieldSelector" | "labelSelector" | "check" => Ty::Dyn,
        _ => return None,
    })
}

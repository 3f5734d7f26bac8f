//! What the typed kinds have in common.
//!
//! The structs under `kubevirt`, `instancetype`, `cdi`, `harvester` and `cni` are both the types that the rest of
//! Croft reads and writes objects with, and the source of the schemas that are served (`shipped`). A field without
//! a default is required; all others may be left out, and may be `null`, which is how Go writes what is unset.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// A struct without fields: that it is there says everything (`bridge: {}`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Marker {}

/// Reads `null` as the default.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares the struct of a kind: its metadata and the fields given here. It is written with its `apiVersion` and
/// `kind`, and it can be used with `kube::Api`.
macro_rules! kind {
    (
        $(#[$meta:meta])*
        $name:ident, $group:literal, $version:literal, $plural:literal, $scope:ident
        { $( $(#[$attr:meta])* $field:ident: $ty:ty ),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            #[serde(default)]
            #[schemars(skip)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$attr])* pub $field: $ty, )*
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[derive(serde::Serialize)]
                #[serde(rename_all = "camelCase")]
                struct Object<'a> {
                    api_version: &'static str,
                    kind: &'static str,
                    metadata: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                    $( $(#[$attr])* $field: &'a $ty, )*
                }
                let object = Object {
                    api_version: concat!($group, "/", $version),
                    kind: stringify!($name),
                    metadata: &self.metadata,
                    $( $field: &self.$field, )*
                };
                serde::Serialize::serialize(&object, serializer)
            }
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use kind;

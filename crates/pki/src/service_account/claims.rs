//! What the tokens say.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use super::{ISSUER, LEGACY_ISSUER, TokenRequest};

/// An object by name, and which one of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The object that a token lives and dies with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundObject {
    /// With the node that it runs on, if known.
    Pod {
        pod: ObjectRef,
        node: Option<ObjectRef>,
    },
    Secret(ObjectRef),
    Node(ObjectRef),
}

/// The claims of a bound token.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub aud: Vec<String>,
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    #[serde(default)]
    pub iss: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    #[serde(default, rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    #[serde(default)]
    pub sub: String,
}

/// The claim `kubernetes.io`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KubernetesClaims {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectRef>,
    pub serviceaccount: ObjectRef,
    #[serde(deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

impl Claims {
    pub(super) fn bound(
        request: &TokenRequest,
        id: &str,
        now: Timestamp,
        expires: Timestamp,
        warn_after: Option<Timestamp>,
    ) -> Self {
        let (pod, secret, node) = match request.bound_to.clone() {
            None => (None, None, None),
            Some(BoundObject::Pod { pod, node }) => (Some(pod), None, node),
            Some(BoundObject::Secret(secret)) => (None, Some(secret), None),
            Some(BoundObject::Node(node)) => (None, None, Some(node)),
        };
        Self {
            aud: request.audiences.clone(),
            exp: Some(expires.as_second()),
            iat: Some(now.as_second()),
            iss: ISSUER.to_owned(),
            jti: id.to_owned(),
            kubernetes: KubernetesClaims {
                namespace: request.namespace.clone(),
                node,
                pod,
                secret,
                serviceaccount: request.service_account.clone(),
                warnafter: warn_after.map(Timestamp::as_second),
            },
            nbf: Some(now.as_second()),
            sub: subject(&request.namespace, &request.service_account.name),
        }
    }
}

/// The claims of a token in a Secret.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LegacyClaims {
    pub(super) iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub(super) namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub(super) secret_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub(super) name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub(super) uid: String,
    pub(super) sub: String,
}

impl LegacyClaims {
    pub(super) fn new(namespace: &str, service_account: &ObjectRef, secret_name: &str) -> Self {
        Self {
            iss: LEGACY_ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret_name: secret_name.to_owned(),
            name: service_account.name.clone(),
            uid: service_account.uid.clone(),
            sub: subject(namespace, &service_account.name),
        }
    }
}

/// The user name of a service account.
pub(super) fn subject(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Audiences are a list, or one string.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

/// Times are seconds since 1970, possibly with a fraction, which is dropped.
#[allow(clippy::cast_possible_truncation)] // A float-to-integer cast saturates, and no sane time comes near the ends.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Whole(i64),
        Fraction(f64),
    }
    Ok(Option::<Number>::deserialize(deserializer)?.map(|number| match number {
        Number::Whole(seconds) => seconds,
        Number::Fraction(seconds) => seconds as i64,
    }))
}

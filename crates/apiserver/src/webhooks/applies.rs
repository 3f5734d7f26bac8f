//! Whether a hook that the rules found is to see this very object, and in which form.

use std::borrow::Cow;

use croft_meta::ApiError;
use croft_schema::expression::{Budget, Evaluation, Inputs};
use serde_json::Value;

use super::hook::Chosen;
use super::{Attributes, Operation};
use crate::admission::authorizer::Caller;
use crate::admission::conditions;
use crate::conversion;

/// The objects of a request in the version that a hook asked for; what is not there is null.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) object: Option<Cow<'a, Value>>,
    pub(super) old: Option<Cow<'a, Value>>,
}

impl Chosen {
    /// What the hook is to see; `None` if it is to see nothing. The objects are in the version of the request.
    pub(super) async fn applies<'a>(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> Result<Option<Shown<'a>>, ApiError> {
        if !self.selects_namespace(attributes, object).await? || !self.selects_object(object, old) {
            return Ok(None);
        }
        let shown = Shown { object: self.shown(attributes, object).await?, old: self.shown(attributes, old).await? };
        Ok(if self.conditions_hold(attributes, &shown)? { Some(shown) } else { None })
    }

    async fn shown<'a>(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&'a Value>,
    ) -> Result<Option<Cow<'a, Value>>, ApiError> {
        Ok(match (object, &self.kind) {
            (Some(object), Some(kind)) => {
                let server = &attributes.call.server;
                let converted = conversion::value(server, attributes.target, object.clone(), kind).await?;
                Some(Cow::Owned(converted))
            }
            (object, _) => object.map(Cow::Borrowed),
        })
    }

    /// Objects outside of namespaces are never left out; a namespace selects itself by the labels it is to have.
    async fn selects_namespace(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<bool, ApiError> {
        let (selector, namespace) = (&self.hook.namespaces, attributes.namespace());
        if selector.is_everything() || (namespace.is_empty() && !attributes.is_namespace()) {
            return Ok(true);
        }
        let is_written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if attributes.is_namespace() && attributes.target.subresource.is_empty() && is_written {
            return Ok(object.is_some_and(|namespace| selector.matches_object(namespace)));
        }
        let cache = &attributes.call.server.cache;
        let namespaces = cache.collection("core/namespaces");
        let mut found = namespaces.get(namespace);
        if found.is_none() {
            // Another server on the same store may just have made it.
            cache.fresh().await?;
            found = namespaces.get(namespace);
        }
        let found = found.ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?;
        Ok(selector.matches_object(&found.json()))
    }

    fn selects_object(&self, object: Option<&Value>, old: Option<&Value>) -> bool {
        let selector = &self.hook.objects;
        selector.is_everything() || [object, old].into_iter().flatten().any(|object| selector.matches_object(object))
    }

    /// What cannot be told is left to the failure policy.
    fn conditions_hold(&self, attributes: &Attributes<'_>, shown: &Shown<'_>) -> Result<bool, ApiError> {
        let told = match &self.hook.conditions {
            Ok(conditions) if conditions.is_empty() => return Ok(true),
            Ok(conditions) => {
                let request = Value::Object(attributes.request(self));
                let Attributes { call, target, name, .. } = attributes;
                let (subresource, namespace) = (target.subresource.as_str(), attributes.namespace());
                let caller = Caller { call, target, subresource, namespace, name };
                let null = &Value::Null;
                let inputs = Inputs {
                    object: shown.object.as_deref().unwrap_or(null),
                    old_object: shown.old.as_deref().unwrap_or(null),
                    request: &request,
                    authorizer: Some(&caller),
                    ..Inputs::default()
                };
                conditions::hold(conditions, &Evaluation::new(inputs, &[], &Budget::of_conditions()))
            }
            Err(why) => Err(why.clone()),
        };
        let why = match told {
            Ok(holds) => return Ok(holds),
            Err(why) => why,
        };
        tracing::warn!(webhook = self.hook.name, error = why, "match conditions could not be evaluated");
        if self.hook.fails_open {
            return Ok(false);
        }
        let target = attributes.target;
        Err(ApiError::forbidden(target.group(), target.plural(), &attributes.name, why))
    }
}

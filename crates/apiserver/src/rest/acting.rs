//! One object that is told to do something, and the caller who may update it.

use croft_meta::ApiError;
use http::Method;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::reply::{self, invalid};
use super::resource::{Sent, asking, kubernetes};
use super::schema::Schema;
use crate::call::{Call, id};
use crate::conversion;
use crate::options::{WriteKind, WriteOptions};
use crate::pipeline;
use crate::user::UserInfo;
use crate::verbs::update::{Candidate, change};
use crate::write::in_version;

#[derive(Debug)]
pub(super) struct Acting<'a> {
    pub(super) call: &'a Call,
    pub(super) schema: &'a Schema,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Acting<'a> {
    /// Refused if the caller may not update the object.
    pub(super) fn new(call: &'a Call, schema: &'a Schema, namespace: &'a str, name: &'a str) -> Result<Self, ApiError> {
        call.server.auth.authorize_told(&call.user, &schema.attributes("update", namespace, name), &call.trail)?;
        Ok(Self { call, schema, namespace, name })
    }

    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        reply::body(self.call)
    }

    /// The object as it is now.
    pub(super) async fn object(&self) -> Result<Value, ApiError> {
        self.call.server.cache.fresh().await?;
        let target = self.schema.target(self.namespace, self.name);
        let found = self.call.server.cache.collection(target.storage_key()).get(&target.id());
        let found = conversion::object(&self.call.server, &target, found.ok_or_else(|| target.not_found())?).await?;
        Ok(in_version(&found, &target))
    }

    /// Another object, as it is stored, whether or not the caller may see it.
    pub(super) fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let group = if group.is_empty() { "core" } else { group };
        let collection = self.call.server.cache.collection(&format!("{group}/{plural}"));
        Some(collection.get(&id(namespace, name))?.json())
    }

    pub(super) fn conflict(&self, why: &str) -> ApiError {
        self.schema.target(self.namespace, self.name).conflict(why)
    }

    /// Changes the object in one step, however often others change it meanwhile; the rules for users hold.
    pub(super) async fn change(
        &self,
        make: impl Fn(&mut Value) -> Result<(), ApiError> + Send + Sync,
    ) -> Result<(), ApiError> {
        self.change_part("", false, make).await
    }

    /// The same, of the object or of its status, as only the platform may.
    pub(super) async fn change_as_platform(
        &self,
        subresource: &str,
        make: impl Fn(&mut Value) -> Result<(), ApiError> + Send + Sync,
    ) -> Result<(), ApiError> {
        self.change_part(subresource, true, make).await
    }

    async fn change_part(
        &self,
        subresource: &str,
        is_internal: bool,
        make: impl Fn(&mut Value) -> Result<(), ApiError> + Send + Sync,
    ) -> Result<(), ApiError> {
        let mut target = self.schema.target(self.namespace, self.name);
        subresource.clone_into(&mut target.subresource);
        let options = WriteOptions::parse(&self.call.query, WriteKind::Update, self.call.user_agent())?;
        let acting = Call::for_object(self.call, &target, is_internal);
        change(&acting, &target, &options, |old| {
            let mut new = old.clone();
            make(&mut new)?;
            Ok(Candidate::Untracked(new))
        })
        .await?;
        for text in acting.take_warnings() {
            self.call.warn(text);
        }
        Ok(())
    }

    /// What can be asked of a kind that this server may not have.
    fn other(&self, group: &str, plural: &str) -> Result<Schema, ApiError> {
        let id = if group.is_empty() { plural.to_owned() } else { format!("{group}.{plural}") };
        Schema::find(&self.call.catalog, &id).ok_or_else(|| reply::no_schema(&id))
    }

    /// Refused if the caller may not do this with objects of another kind in the same namespace.
    pub(super) fn may(&self, verb: &str, group: &str, plural: &str) -> Result<(), ApiError> {
        let other = self.other(group, plural)?;
        self.call.server.auth.authorize(&self.call.user, &other.attributes(verb, self.namespace, ""))
    }

    /// Creates an object in the caller's name.
    pub(super) async fn create(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Value, ApiError> {
        let other = self.other(group, plural)?;
        let sent = Sent::json(&other, object)?;
        kubernetes(self.call, &other, Method::POST, (namespace, ""), sent).await
    }

    /// Deletes an object in the caller's name; one that is not there is gone.
    pub(super) async fn delete(&self, group: &str, plural: &str, name: &str) -> Result<(), ApiError> {
        let other = self.other(group, plural)?;
        match kubernetes(self.call, &other, Method::DELETE, (self.namespace, name), Sent::NOTHING).await {
            Err(error) if error.code() == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    /// Deletes what the caller has made, to undo it; a failure is only told to the log.
    pub(super) async fn delete_as_platform(&self, group: &str, plural: &str, name: &str) {
        self.as_platform(Method::DELETE, (group, plural), name, Sent::NOTHING).await;
    }

    /// Completes what the caller has made, by a merge patch; a failure is only told to the log.
    pub(super) async fn amend_as_platform(&self, group: &str, plural: &str, name: &str, patch: &Value) {
        let sent = Sent { content_type: "application/merge-patch+json", body: patch.to_string().into() };
        self.as_platform(Method::PATCH, (group, plural), name, sent).await;
    }

    async fn as_platform(&self, method: Method, (group, plural): (&str, &str), name: &str, sent: Sent<'_>) {
        let Ok(other) = self.other(group, plural) else { return };
        let mut asking = asking(self.call, &method, &other.kubernetes_path(self.namespace, name), sent);
        (asking.user, asking.is_internal) = (UserInfo::internal(), true);
        match pipeline::resource(&asking).await {
            Err(error) if error.code() != 404 => {
                let namespace = self.namespace;
                tracing::warn!(%method, plural, namespace, name, error = error.message(), "an action was left unfinished");
            }
            _ => {}
        }
    }

    /// Asks the KubeVirt subresource of the machine; who may update it may do that.
    pub(super) async fn subresource(&self, kind: &str, subresource: &str, body: &Value) -> Result<(), ApiError> {
        const ROOT: &str = "/apis/subresources.kubevirt.io/v1/namespaces";
        let path = format!("{ROOT}/{}/{kind}/{}/{subresource}", self.namespace, self.name);
        let sent = Sent { content_type: "application/json", body: body.to_string().into() };
        let answer = pipeline::resource(&asking(self.call, &Method::PUT, &path, sent)).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        // The node refused; it says why.
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        let why = status["message"].as_str().map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
        Err(ApiError::new(code, "InvalidState", why))
    }
}

/// A parameter that must be there.
pub(super) fn required<'a>(field: &str, value: &'a str) -> Result<&'a str, ApiError> {
    match value.trim() {
        "" => Err(invalid("MissingRequired", format!("parameter {field} is required"))),
        value => Ok(value),
    }
}

/// A parameter that must be there, and be the name of an object.
pub(super) fn name<'a>(field: &str, value: &'a str) -> Result<&'a str, ApiError> {
    let value = required(field, value)?;
    match croft_meta::names::is_dns1123_subdomain(value).first() {
        Some(why) => Err(invalid("InvalidFormat", format!("{field} {value:?}: {why}"))),
        None => Ok(value),
    }
}

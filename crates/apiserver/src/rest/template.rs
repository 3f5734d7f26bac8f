//! The versions of a template, as a collection below it.

use croft_meta::ApiError;
use http::HeaderMap;

use super::reply;
use super::schema::Schema;
use super::{acting, collection};
use crate::answer::Answer;
use crate::call::Call;
use crate::request::Query;

const VERSIONS: &str = "harvesterhci.io.virtualmachinetemplateversions";

pub(super) async fn versions(
    call: &Call,
    root: &str,
    schema: &Schema,
    (namespace, name): (&str, &str),
) -> Result<Answer, ApiError> {
    let template = acting::name("name", name)?;
    let target = schema.target(namespace, template);
    call.server.auth.authorize(&call.user, &schema.attributes("get", namespace, template))?;
    call.server.cache.fresh().await?;
    if call.server.cache.collection(target.storage_key()).get(&target.id()).is_none() {
        return Err(target.not_found());
    }
    let versions = Schema::find(&call.catalog, VERSIONS).ok_or_else(|| reply::no_schema(VERSIONS))?;
    let query = Query::of([("filter", format!("spec.templateId={namespace}/{template}"))]);
    let headers: HeaderMap = call.headers.clone();
    let asking = Call::new(
        call.server.clone(),
        call.user.clone(),
        call.is_internal,
        call.info.clone(),
        query,
        headers,
        bytes::Bytes::new(),
    );
    collection::list(&asking, root, &versions, namespace).await
}

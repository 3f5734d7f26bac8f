//! Making a key pair: the public key is kept, and the private one given to the caller, once.

use std::sync::LazyLock;

use croft_meta::ApiError;
use croft_pki::ssh::{self, Algorithm};
use http::HeaderValue;
use http::Method;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION};
use serde::Deserialize;
use serde_json::json;

use super::acting::name;
use super::actions::not_available;
use super::reply;
use super::resource::{Sent, kubernetes};
use super::schema::Schema;
use crate::answer::{self, Answer};
use crate::auth::authenticate::costly::Costly;
use crate::call::Call;

/// A key takes seconds of a core to find: one at a time, and not in the way of those who log in.
static KEYS: LazyLock<Costly> = LazyLock::new(|| Costly::new(1, 16));

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    name: String,
    namespace: String,
}

pub(super) async fn act(call: &Call, schema: &Schema, action: &str) -> Result<Answer, ApiError> {
    if action != "keygen" {
        return Err(not_available(action));
    }
    let asked: Asked = reply::body(call)?;
    let key = name("name", &asked.name)?;
    let namespace = name("namespace", &asked.namespace)?;
    // Not for nothing: a key takes a while to find.
    call.server.auth.authorize(&call.user, &schema.attributes("create", namespace, ""))?;
    let pair = KEYS.run(|| ssh::generate(Algorithm::Rsa)).await?.map_err(ApiError::internal)?;
    let object =
        json!({ "metadata": { "name": key, "namespace": namespace }, "spec": { "publicKey": pair.public_line } });
    kubernetes(call, schema, Method::POST, (namespace, ""), Sent::json(schema, object)?).await?;
    let mut answer = answer::bytes(200, "application/octet-stream", pair.private_pem.reveal().to_owned());
    let headers = answer.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename={key}.pem")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

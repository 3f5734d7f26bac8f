//! The list of revoked credentials, which the server looks at with every request: the Secret `revoked-credentials`.

use anyhow::{Context, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::client::{Client, Refusal, SECRETS, is_not_found};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "revoked-credentials";
const SECRET_TYPE: &str = "croft.io/revoked";
/// What has ended by itself is kept on the list for this long.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Puts a credential on the list, until it would have ended anyway; and takes off what has.
pub(crate) async fn add(client: &Client, key: &str, until: Option<Timestamp>) -> anyhow::Result<()> {
    let until = until.map(|until| format!("{until:.0}")).unwrap_or_default();
    let mut data = Map::from_iter([(key.to_owned(), json!(BASE64_STANDARD.encode(until)))]);
    let now = Timestamp::now();
    for (old, until) in all(client).await? {
        if old != key && until.is_some_and(|until| now.duration_since(until) > KEPT) {
            data.insert(old, Value::Null);
        }
    }
    let path = SECRETS.one(NAMESPACE, NAME)?;
    match client.merge(&path, &json!({"data": data})).await {
        Err(err) if is_not_found(&err) => {}
        result => return result.map(drop).context("cannot revoke"),
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data,
    });
    match client.create(&SECRETS.all(NAMESPACE), &secret).await {
        // Somebody else began the list.
        Err(err) if err.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 409) => {
            all(client).await?;
            client.merge(&path, &json!({"data": data})).await.map(drop).context("cannot revoke")
        }
        result => result.map(drop).context("cannot revoke"),
    }
}

/// What is on the list, and when it would have ended. Fails if what is there is no such list: the server does not look at it.
pub(crate) async fn all(client: &Client) -> anyhow::Result<Vec<(String, Option<Timestamp>)>> {
    let Some(secret) = client.find(&SECRETS.one(NAMESPACE, NAME)?).await? else { return Ok(Vec::new()) };
    let found = secret["type"].as_str().unwrap_or_default();
    if found != SECRET_TYPE {
        bail!(
            "the Secret {NAME} of {NAMESPACE} is of type {found:?} instead of {SECRET_TYPE:?}, and the server heeds nothing in it: \
             find out who made it, delete it, and revoke again"
        );
    }
    let until = |value: &Value| {
        let text = String::from_utf8(BASE64_STANDARD.decode(value.as_str()?).ok()?).ok()?;
        text.parse::<Timestamp>().ok()
    };
    let data = secret["data"].as_object().cloned().unwrap_or_default();
    Ok(data.into_iter().map(|(key, value)| (key, until(&value))).collect())
}

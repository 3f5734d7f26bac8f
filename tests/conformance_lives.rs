//! One life, the same for every kind: found in discovery, made, read, listed, watched, changed, and deleted alone and together.

use anyhow::{Result, ensure};
use croft_testkit::{Call, Client, eventually};
use http::Method;
use serde_json::{Value, json};

/// A kind, and what one of its objects is like.
#[derive(Debug)]
pub struct Life {
    version: &'static str,
    plural: &'static str,
    is_namespaced: bool,
    object: Value,
    status: Option<Value>,
    has_scale: bool,
    change: Option<Value>,
    fixed: Option<Value>,
    is_elsewhere: bool,
}

impl Life {
    pub fn of(version: &'static str, plural: &'static str, object: Value) -> Self {
        Self {
            version,
            plural,
            is_namespaced: true,
            object,
            status: None,
            has_scale: false,
            change: None,
            fixed: None,
            is_elsewhere: false,
        }
    }

    pub fn cluster(version: &'static str, plural: &'static str, object: Value) -> Self {
        Self { is_namespaced: false, ..Self::of(version, plural, object) }
    }

    #[must_use]
    pub fn with_status(self, status: Value) -> Self {
        Self { status: Some(status), ..self }
    }

    #[must_use]
    pub fn with_scale(self) -> Self {
        Self { has_scale: true, ..self }
    }

    /// What it lets itself be changed to.
    #[must_use]
    pub fn with_change(self, change: Value) -> Self {
        Self { change: Some(change), ..self }
    }

    /// What it does not let itself be changed to.
    #[must_use]
    pub fn with_fixed(self, change: Value) -> Self {
        Self { fixed: Some(change), ..self }
    }

    /// One is in another namespace as well.
    #[must_use]
    pub fn also_elsewhere(self) -> Self {
        Self { is_elsewhere: true, ..self }
    }

    fn root(&self) -> String {
        if self.version.contains('/') { format!("/apis/{}", self.version) } else { format!("/api/{}", self.version) }
    }

    fn path(&self) -> String {
        if self.is_namespaced { self.path_in("default") } else { format!("{}/{}", self.root(), self.plural) }
    }

    fn path_in(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.root(), self.plural)
    }

    fn named(&self, name: &str) -> Value {
        let mut object = self.object.clone();
        object["metadata"] = json!({"name": name, "labels": {"life": self.plural}});
        object
    }
}

/// Every step, for one kind.
pub async fn live(client: &Client, life: &Life) {
    all_of(client, life).await.unwrap_or_else(|error| panic!("{} {}: {error:#}", life.version, life.plural));
}

async fn all_of(client: &Client, life: &Life) -> Result<()> {
    discovered(client, life).await?;
    let (path, selector) = (life.path(), format!("labelSelector=life%3D{}", life.plural));
    let list = client.get(&format!("{path}?{selector}")).await?.ok()?;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let watch = format!("{path}?watch=1&{selector}&resourceVersion={from}");
    let mut events = client.open(Call::new(Method::GET, &watch)).await?;
    for name in ["life-a", "life-b", "life-c"] {
        client.post(&path, &life.named(name)).await?.ok()?;
    }
    let everywhere = &format!("{}/{}?{selector}", life.root(), life.plural);
    let elsewhere = &life.path_in("kube-public");
    if life.is_elsewhere {
        client.post(elsewhere, &life.named("life-d")).await?.ok()?;
    }
    for (list, length) in [(everywhere, 3 + usize::from(life.is_elsewhere)), (&format!("{path}?{selector}"), 3)] {
        let list = client.get(list).await?.ok()?;
        ensure!(list["items"].as_array().is_some_and(|items| items.len() == length), "{list}");
    }
    changed(client, life, &format!("{path}/life-a")).await?;
    let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    client.send(Call::new(Method::DELETE, &format!("{path}/life-a")).json(&options)).await?.ok()?;
    client.send(Call::new(Method::DELETE, &format!("{path}?{selector}")).json(&options)).await?.ok()?;
    eventually("all are gone", async || {
        let list = client.get(&format!("{path}?{selector}")).await?.ok()?;
        ensure!(list["items"] == json!([]), "{}: {list}", life.plural);
        Ok(())
    })
    .await;
    if life.is_elsewhere {
        let list = client.get(everywhere).await?.ok()?;
        ensure!(list["items"].as_array().is_some_and(|items| items.len() == 1), "only the one elsewhere: {list}");
        client.delete(&format!("{elsewhere}/life-d")).await?.ok()?;
    }
    let (mut added, mut modified, mut deleted) = (0, 0, 0);
    while deleted < 3 {
        let event = events.event().await?.unwrap_or_default();
        match event["type"].as_str() {
            Some("ADDED") => added += 1,
            Some("MODIFIED") => modified += 1,
            Some("DELETED") => deleted += 1,
            _ => anyhow::bail!("{event}"),
        }
    }
    ensure!(added == 3 && modified >= 2, "{added} came, {modified} changed");
    Ok(())
}

async fn discovered(client: &Client, life: &Life) -> Result<()> {
    if let Some((group, _)) = life.version.split_once('/') {
        let groups = client.get("/apis").await?.ok()?;
        let known = groups["groups"].as_array().into_iter().flatten().any(|it| it["name"] == group);
        ensure!(known, "{group} is not in /apis");
    }
    let resources = client.get(&life.root()).await?.ok()?;
    let find =
        |name: &str| resources["resources"].as_array().into_iter().flatten().find(|it| it["name"] == name).cloned();
    let found = find(life.plural).unwrap_or_default();
    for verb in ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"] {
        ensure!(found["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!(verb))), "{verb}: {found}");
    }
    ensure!(life.status.is_none() || find(&format!("{}/status", life.plural)).is_some(), "no status");
    ensure!(!life.has_scale || find(&format!("{}/scale", life.plural)).is_some(), "no scale");
    Ok(())
}

async fn changed(client: &Client, life: &Life, path: &str) -> Result<()> {
    let mut patch = json!({"metadata": {"annotations": {"patched": "yes"}, "labels": {"patched": "yes"}}});
    if let Some(change) = &life.change {
        put_in(&mut patch, change);
    }
    let patched = client.patch(path, "merge-patch", &patch).await?.ok()?;
    ensure!(has(&patched, &patch), "{patched}");
    // Controllers may write in between: as a client does, read again and retry.
    eventually("it is replaced", async || {
        let mut object = client.get(path).await?.ok()?;
        object["metadata"]["annotations"]["updated"] = json!("yes");
        let updated = client.put(path, &object).await?.ok()?;
        ensure!(updated["metadata"]["annotations"]["updated"] == "yes", "{updated}");
        Ok(())
    })
    .await;
    if let Some(status) = &life.status {
        let path = format!("{path}/status");
        let patched = client.patch(&path, "merge-patch", &json!({"status": status})).await?.ok()?;
        ensure!(has(&patched["status"], status), "{status} was sent: {patched}");
        let other = other(status);
        eventually("its status is replaced", async || {
            let mut object = client.get(&path).await?.ok()?;
            put_in(&mut object["status"], &other);
            let updated = client.put(&path, &object).await?.ok()?;
            ensure!(has(&updated["status"], &other), "{other} was sent: {updated}");
            Ok(())
        })
        .await;
    }
    if life.has_scale {
        let scale_path = &format!("{path}/scale");
        let new = client.get(scale_path).await?.ok()?;
        ensure!(new["spec"]["replicas"] == 1, "{new}");
        client.patch(scale_path, "merge-patch", &json!({"spec": {"replicas": 2}})).await?.ok()?;
        let mut scale = client.get(scale_path).await?.ok()?;
        ensure!(scale["kind"] == "Scale" && scale["spec"]["replicas"] == 2, "{scale}");
        scale["spec"]["replicas"] = json!(4);
        let updated = client.put(scale_path, &scale).await?.ok()?;
        ensure!(updated["kind"] == "Scale" && updated["spec"]["replicas"] == 4, "{updated}");
        let whole = client.get(path).await?.ok()?;
        ensure!(whole["spec"]["replicas"] == 4, "{whole}");
    }
    if let Some(change) = &life.fixed {
        let mut object = client.get(path).await?.ok()?;
        put_in(&mut object, change);
        for answer in [client.patch(path, "merge-patch", change).await?, client.put(path, &object).await?] {
            ensure!(answer.status == 422, "{change} was let through: {}", answer.text());
        }
    }
    Ok(())
}

/// Of a list of conditions, addresses or whatever has types, the one of the same type.
fn of_type<'a>(list: &'a [Value], wanted: &Value) -> Option<&'a Value> {
    list.iter().find(|it| it["type"].is_string() && it["type"] == wanted["type"])
}

/// Whether all that was written is shown. Controllers may add to it.
fn has(shown: &Value, written: &Value) -> bool {
    match (shown, written) {
        (Value::Object(shown), Value::Object(written)) => {
            written.iter().all(|(field, value)| shown.get(field).is_some_and(|shown| has(shown, value)))
        }
        (Value::Array(shown), Value::Array(written)) if written.iter().all(|it| it["type"].is_string()) => {
            written.iter().all(|value| of_type(shown, value).is_some_and(|shown| has(shown, value)))
        }
        (Value::Array(shown), Value::Array(written)) => {
            shown.len() == written.len() && shown.iter().zip(written).all(|(shown, written)| has(shown, written))
        }
        _ => shown == written,
    }
}

/// The same status with other values in it.
fn other(value: &Value) -> Value {
    match value {
        Value::Object(fields) if fields.contains_key("type") => {
            let mut fields = fields.clone();
            fields.insert("message".to_owned(), json!("replaced"));
            Value::Object(fields)
        }
        Value::Object(fields) => fields.iter().map(|(field, value)| (field.clone(), other(value))).collect(),
        Value::Array(items) => items.iter().map(other).collect(),
        Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1),
        Value::Bool(flag) => json!(!flag),
        // A time stays one, and so does an address.
        Value::String(text) if text.ends_with("03:04:05Z") => json!(text.replace("04:05Z", "04:06Z")),
        Value::String(text) if text == "169.1.1.1" => json!("169.1.1.2"),
        _ => json!("replaced"),
    }
}

/// As a client changes what it has read: what is not its own stays.
fn put_in(object: &mut Value, status: &Value) {
    match (object, status) {
        (Value::Object(object), Value::Object(status)) => {
            for (field, value) in status {
                put_in(object.entry(field.as_str()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(items), Value::Array(status)) if status.iter().all(|it| it["type"].is_string()) => {
            for value in status {
                items.retain(|item| item["type"] != value["type"]);
                items.push(value.clone());
            }
        }
        (object, status) => *object = status.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_was_dropped_or_left_as_it_was_is_seen() {
        let status = json!({"conditions": [{"type": "A", "status": "True"}], "replicas": 0});
        let mut shown = json!({"conditions": [{"type": "B"}, {"type": "A", "status": "True"}], "replicas": 0, "x": 1});
        assert!(has(&shown, &status) && !has(&shown, &other(&status)));
        for poor in
            [json!({}), Value::Null, json!({"conditions": [], "replicas": 0}), json!({"conditions": [{"type": "A"}]})]
        {
            assert!(!has(&poor, &status), "{poor}");
        }
        put_in(&mut shown, &other(&status));
        assert!(has(&shown, &other(&status)) && shown["conditions"][0] == json!({"type": "B"}) && shown["x"] == 1);
    }
}

//! CustomResourceDefinitions: accepting their names, establishing them, serving their kinds.
//!
//! A definition whose names are free is established in the very write that stores it, so that the
//! kind is served as soon as the definition is acknowledged.

use std::cell::LazyCell;
use std::sync::Arc;

use croft_meta::{ApiError, FieldPath, object};
use croft_schema::{Additional, Schema};
use serde_json::{Value, json};

use crate::cache::{Cache, Object};
use crate::call::{Call, Target};
use crate::catalog::{Catalog, Definition};
use crate::clock;
use crate::conversion::Conversion;

pub(crate) const STORAGE_KEY: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Holds a definition until its objects are gone.
const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The built-in kinds and those of all established definitions. What has not changed since `previous` is taken from
/// there: to read a large schema takes its time, and there are many.
pub(crate) fn catalog(cache: &Cache, previous: Option<&Catalog>) -> Catalog {
    let read = |object: &Arc<Object>| {
        let known = previous.and_then(|catalog| catalog.definition(object.name()));
        let definition = match known.filter(|known| known.revision == object.revision) {
            Some(known) => known.clone(),
            None => definition(object),
        };
        (object.name().to_owned(), definition)
    };
    let definitions = cache.collection(STORAGE_KEY).list("").iter().map(read).collect();
    Catalog::new(croft_api::builtin().iter().cloned(), definitions)
}

fn definition(object: &Arc<Object>) -> Definition {
    // What the store holds was written by us, so it parses; damaged bytes are a definition that is not served.
    let crd = croft_api::definition_outline(&object.bytes).unwrap_or_default();
    let is_established = has_condition(&crd, "Established");
    let whole = Arc::clone(object);
    let resource = is_established.then(|| croft_api::custom_resource(&crd, move || whole.json()));
    let whole = Arc::clone(object);
    let stored = if is_established { unserved_storage(&crd) } else { None };
    let unserved = stored.map(|outline| {
        croft_api::custom_resource(&outline, move || unserved_storage(&whole.json()).unwrap_or_default())
    });
    Definition {
        revision: object.revision,
        uid: object::uid(&crd).to_owned(),
        is_going: object::deletion_timestamp(&crd).is_some(),
        resource: resource.map(Arc::new),
        unserved: unserved.map(Arc::new),
        conversion: Conversion::of(&crd),
    }
}

/// A definition of nothing but the version that is stored, as if that were served; `None` if it is.
fn unserved_storage(crd: &Value) -> Option<Value> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    let mut version = versions.iter().find(|version| version["storage"] == true && version["served"] != true)?.clone();
    version["served"] = json!(true);
    let mut alone = crd.clone();
    alone["spec"]["versions"] = json!([version]);
    Some(alone)
}

/// Objects that were stored before their definition got a default show it all the same, until it is taken away again.
/// Objects that are younger than the definition's last change have all defaults: there is nothing to do for them, which
/// is nearly all of them.
pub(crate) fn default_old_objects(cache: &Cache, catalog: &Catalog) {
    let definitions = cache.collection(STORAGE_KEY);
    for resource in catalog.resources().iter().filter(|r| r.is_custom) {
        let Some(definition) = definitions.get(&format!("{}.{}", resource.names.plural, resource.group)) else {
            continue;
        };
        // Asked for the first old object, if there is one: a kind that nobody uses keeps its schema unread.
        let is_defaulted = LazyCell::new(|| resource.versions.iter().any(|version| has_defaults(&version.schema)));
        cache.collection(&resource.storage_key).renew(definition.revision, |object| {
            if !*is_defaulted {
                return object.without_defaults();
            }
            // What is stored, and not what was made of it for the schema of before.
            let before: Value = serde_json::from_slice(object.as_stored()).unwrap_or_default();
            // The version that it was stored in has the say, which need not be the one that is stored now.
            let version = object::gvk(&before).version;
            let stored = resource.version(&version).or_else(|| resource.version(&resource.storage_version))?;
            let mut after = before.clone();
            croft_schema::apply_defaults(&stored.schema, &mut after);
            if after == before { object.without_defaults() } else { Some(object.with_defaults(&after)) }
        });
    }
}

fn has_defaults(schema: &Schema) -> bool {
    let additional = match &schema.additional {
        Additional::Schema(values) => has_defaults(values),
        Additional::None => false,
    };
    schema.default.is_some()
        || additional
        || schema.items.as_deref().is_some_and(has_defaults)
        || schema.properties.values().any(|property| has_defaults(property))
}

/// All established definitions, for OpenAPI.
pub(crate) fn established(cache: &Cache) -> Vec<Value> {
    let all = cache.collection(STORAGE_KEY).list("");
    all.iter().map(|o| o.json()).filter(|crd| has_condition(crd, "Established")).collect()
}

fn has_condition(crd: &Value, ty: &str) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == ty && c["status"] == "True")
}

/// What the server adds to a definition: accepted names, conditions, stored versions, the cleanup finalizer.
pub(crate) fn complete(call: &Call, target: &Target, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    check_schemas(target, new)?;
    if object::deletion_timestamp(new).is_none() {
        establish(&call.catalog, new, old);
    }
    Ok(())
}

/// The same for a definition that is known to be good. One that is established stays so: names that it asks for later and
/// does not get are not served, the others are.
pub(crate) fn establish(catalog: &Catalog, new: &mut Value, old: Option<&Value>) {
    let now = clock::now_rfc3339();
    let names = accept_names(catalog, new, old);
    let accepted = match &names.conflict {
        None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", &now),
        Some((reason, why)) => condition("NamesAccepted", "False", reason, why, &now),
    };
    let kept = old.and_then(|o| o.pointer("/status/conditions")).and_then(Value::as_array);
    let known = kept.into_iter().flatten().find(|c| c["type"] == "Established" && c["status"] == "True");
    let is_established = names.conflict.is_none() || known.is_some();
    let established = match known {
        Some(known) => known.clone(),
        None if is_established => {
            let why = "the initial names have been accepted";
            condition("Established", "True", "InitialNamesAccepted", why, &now)
        }
        None => condition("Established", "False", "NotAccepted", "not all names are accepted", &now),
    };
    let stored = stored_versions(new, old);
    let conditions = [accepted, established].map(|condition| keep_transition_time(condition, kept));
    let status = &mut new["status"];
    status["conditions"] = json!(conditions);
    status["storedVersions"] = json!(stored);
    status["acceptedNames"] = names.accepted;
    let mut finalizers: Vec<String> = object::finalizers(new).into_iter().map(str::to_owned).collect();
    if is_established && !finalizers.iter().any(|f| f == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.to_owned());
        object::set_meta(new, "finalizers", json!(finalizers));
    }
}

fn condition(ty: &str, status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({ "type": ty, "status": status, "reason": reason, "message": message, "lastTransitionTime": now })
}

fn keep_transition_time(mut condition: Value, kept: Option<&Vec<Value>>) -> Value {
    let same = kept.into_iter().flatten().find(|c| {
        c["type"] == condition["type"] && c["status"] == condition["status"] && c["reason"] == condition["reason"]
    });
    if let Some(time) = same.and_then(|c| c.get("lastTransitionTime")) {
        condition["lastTransitionTime"] = time.clone();
    }
    condition
}

/// Every version that objects may be stored in: all that ever were the storage version.
fn stored_versions(new: &Value, old: Option<&Value>) -> Vec<String> {
    let current = new.pointer("/status/storedVersions").or_else(|| old?.pointer("/status/storedVersions"));
    let mut stored: Vec<String> = current
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    let versions = new.pointer("/spec/versions").and_then(Value::as_array);
    let storage = versions.into_iter().flatten().find(|v| v["storage"] == true);
    if let Some(name) = storage.and_then(|v| v["name"].as_str())
        && !stored.iter().any(|s| s == name)
    {
        stored.push(name.to_owned());
    }
    stored
}

/// Which of the names that a definition asks for it gets.
struct AcceptedNames {
    accepted: Value,
    /// The reason and message of the last name that is taken by another resource of the group.
    conflict: Option<(&'static str, String)>,
}

type IsTaken<'a> = &'a dyn Fn(&str) -> bool;

/// The names of the last state, each replaced by what is asked for now if no other resource of the group has that.
fn accept_names(catalog: &Catalog, crd: &Value, old: Option<&Value>) -> AcceptedNames {
    let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let others: Vec<_> =
        catalog.resources().iter().filter(|r| r.group == group && (r.names.plural != plural || !r.is_custom)).collect();
    let is_resource = |name: &str| {
        others.iter().any(|r| {
            r.names.plural == name || r.names.singular == name || r.names.short_names.iter().any(|short| short == name)
        })
    };
    let is_kind = |name: &str| others.iter().any(|r| r.names.kind == name || r.names.list_kind == name);
    let mut asked = crd.pointer("/spec/names").cloned().unwrap_or_else(|| json!({}));
    let kind = text("/spec/names/kind");
    if text("/spec/names/singular").is_empty() {
        asked["singular"] = json!(kind.to_lowercase());
    }
    if text("/spec/names/listKind").is_empty() {
        asked["listKind"] = json!(format!("{kind}List"));
    }
    let had = old.and_then(|old| old.pointer("/status/acceptedNames")).filter(|names| names.is_object());
    // Both are always there, if only as empty texts.
    let mut accepted = had.cloned().unwrap_or_else(|| json!({"plural": "", "kind": ""}));
    let had = accepted.clone();
    let mut conflict = None;
    // Upstream's order: of several conflicts the last is told.
    let checks: [(&str, &'static str, IsTaken<'_>); 5] = [
        ("plural", "PluralConflict", &is_resource),
        ("singular", "SingularConflict", &is_resource),
        ("shortNames", "ShortNamesConflict", &is_resource),
        ("kind", "KindConflict", &is_kind),
        ("listKind", "ListKindConflict", &is_kind),
    ];
    for (field, reason, is_taken) in checks {
        let is_new = |name: &&str| !texts(&had[field]).contains(name);
        let taken: Vec<String> =
            texts(&asked[field]).into_iter().filter(is_new).filter(|name| is_taken(name)).map(in_use).collect();
        match taken.as_slice() {
            [] => take_over(&mut accepted, &asked, field),
            [one] => conflict = Some((reason, one.clone())),
            several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    take_over(&mut accepted, &asked, "categories");
    AcceptedNames { accepted, conflict }
}

/// The one name, or all names of a list.
fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .map_or_else(|| value.as_str().into_iter().collect(), |all| all.iter().filter_map(Value::as_str).collect())
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

fn take_over(accepted: &mut Value, asked: &Value, field: &str) {
    match (asked.get(field), accepted.as_object_mut()) {
        (Some(name), _) => accepted[field] = name.clone(),
        (None, Some(names)) => drop(names.remove(field)),
        (None, None) => {}
    }
}

/// Schemas must be structural, and their rules must compile.
fn check_schemas(target: &Target, crd: &Value) -> Result<(), ApiError> {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let mut errors = Vec::new();
    let versions: Vec<&Value> = versions.into_iter().flatten().collect();
    for (index, version) in versions.iter().enumerate() {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else { continue };
        // Upstream keeps the schema of a sole version in its old place, and names that place in errors.
        let path = match versions.len() {
            1 => FieldPath::new("spec.validation"),
            _ => FieldPath::new("spec.versions").index(index).child("schema"),
        };
        errors.extend(croft_schema::check_structural(schema, &path.child("openAPIV3Schema")));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(target.group(), target.served.kind(), object::name(crd), &errors))
}

/// No new objects of a kind whose definition is going.
pub(crate) fn accepts_instances(call: &Call, target: &Target) -> Result<(), ApiError> {
    let name = format!("{}.{}", target.plural(), target.group());
    let Some(crd) = call.server.cache.collection(STORAGE_KEY).get(&name) else { return Ok(()) };
    let catalog = call.server.catalog();
    // To read a large definition takes its time; mostly the catalog has done so.
    let is_going = match catalog.definition(&name).filter(|known| known.revision == crd.revision) {
        Some(known) => known.is_going,
        None => object::deletion_timestamp(&crd.json()).is_some(),
    };
    if !is_going {
        return Ok(());
    }
    Err(ApiError::method_not_allowed(
        target.group(),
        target.plural(),
        "create not allowed while custom resource definition is terminating",
    ))
}

pub(crate) fn mark_terminating(crd: &mut Value, now: &str) {
    let Some(conditions) = crd.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
    conditions.retain(|c| c["type"] != "Terminating");
    conditions.push(json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        "lastTransitionTime": now,
    }));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::TestServer;

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_definition_that_works_goes_on_working_when_it_asks_for_names_that_others_have() {
        let server = TestServer::start().await;
        let definition = |plural: &str, kind: &str, short: &str| {
            let schema = json!({"openAPIV3Schema": {"type": "object"}});
            json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind, "shortNames": [short]},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
        };
        server.post(DEFINITIONS, &definition("toys", "Toy", "ty")).await;
        server.post(DEFINITIONS, &definition("balls", "Ball", "bl")).await;
        let path = format!("{DEFINITIONS}/balls.example.com");
        let asked =
            json!({"spec": {"names": {"shortNames": ["bl", "ty"], "categories": ["round"], "singular": "toy"}}});
        let (code, changed) = server.send("PATCH", &path, &asked).await;
        assert_eq!(code, 200, "{changed}");
        let conditions = changed["status"]["conditions"].as_array().unwrap();
        let status = |ty: &str| conditions.iter().find(|c| c["type"] == ty).unwrap();
        assert_eq!(status("NamesAccepted")["status"], "False");
        assert_eq!(status("NamesAccepted")["reason"], "ShortNamesConflict");
        assert_eq!(status("NamesAccepted")["message"], r#""ty" is already in use"#);
        assert_eq!(
            (&status("Established")["status"], &status("Established")["reason"]),
            (&json!("True"), &json!("InitialNamesAccepted"))
        );
        let accepted = json!({"plural": "balls", "singular": "ball", "kind": "Ball", "listKind": "BallList",
            "shortNames": ["bl"], "categories": ["round"]});
        assert_eq!(changed["status"]["acceptedNames"], accepted);
        let balls = "/apis/example.com/v1/namespaces/default/balls";
        let ball = json!({"apiVersion": "example.com/v1", "kind": "Ball", "metadata": {"name": "red"}});
        server.post(balls, &ball).await;
        // A new one has nothing to go on with.
        let new = server.post(DEFINITIONS, &definition("kites", "Toy", "kt")).await;
        assert_eq!(new["status"]["conditions"][1]["status"], "False", "{new}");
        assert_eq!(new["status"]["acceptedNames"]["kind"], "");
        assert_eq!(server.send("GET", "/apis/example.com/v1/kites", &json!(null)).await.0, 404);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_stored_in_a_version_that_is_not_served_can_be_removed_by_the_servers_own_parts() {
        let server = TestServer::start().await;
        let version = |name: &str, is_stored: bool, is_served: bool| {
            let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            json!({"name": name, "served": is_served, "storage": is_stored, "schema": schema})
        };
        let spec = |versions: serde_json::Value| {
            json!({"spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "toys", "kind": "Toy"}, "versions": versions}})
        };
        let mut definition = spec(json!([version("v1", true, true), version("v2", false, true)]));
        definition["metadata"] = json!({"name": "toys.example.com"});
        server.post(DEFINITIONS, &definition).await;
        let toys = |version: &str| format!("/apis/example.com/{version}/namespaces/default/toys");
        let toy = json!({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "top"}, "color": "red"});
        server.post(&toys("v1"), &toy).await;
        let path = format!("{DEFINITIONS}/toys.example.com");
        let is_told = || server.running.server().catalog().find("example.com", "v1", "toys").is_some();
        for is_other_served in [true, false] {
            let unserved = spec(json!([version("v1", true, false), version("v2", false, is_other_served)]));
            let (code, changed) = server.send("PATCH", &path, &unserved).await;
            assert_eq!(code, 200, "{changed}");
            assert!(!is_told(), "users are not served it");
            assert_eq!(server.get(&toys("v1")).await["items"][0]["color"], "red");
        }
        let top = format!("{}/top", toys("v1"));
        assert_eq!(server.send("DELETE", &top, &json!(null)).await.0, 200);
        assert_eq!(server.get(&toys("v1")).await["items"], json!([]));
        assert_eq!(server.send("GET", &toys("v2"), &json!(null)).await.0, 404);
    }
}

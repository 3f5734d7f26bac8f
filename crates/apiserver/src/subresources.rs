//! Subresources beyond the object itself, and the kinds that are answered rather than stored.

mod eviction;

use croft_meta::{ApiError, Gvk, object};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::call::{Call, Target};
use crate::options::{WriteKind, WriteOptions};
use crate::pipeline::{not_allowed, written};
use crate::verbs::reviewed;
use crate::verbs::update::{Candidate, change};
use crate::{connections, decode, negotiate, prepare, verbs};

/// A request for `<object>/<subresource>`.
pub(crate) async fn answer(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    let listed = target.served.version().subresources.iter().find(|s| s.name == target.subresource);
    let Some(subresource) = listed else {
        let is_custom = target.served.resource.is_custom;
        return Err(if is_custom { target.not_found() } else { ApiError::no_such_path() });
    };
    if !subresource.verbs.contains(&call.info.verb) {
        return Err(not_allowed());
    }
    if connections::is_options(&subresource.kind) {
        return connections::answer(call, target).await;
    }
    match (subresource.name.as_str(), call.info.verb) {
        ("scale", "get") => Ok(answer::json(200, &verbs::scale::get(call, target).await?)),
        ("scale", "update") => Ok(answer::json(200, &verbs::scale::update(call, target).await?)),
        ("scale", _) => Ok(answer::json(200, &verbs::scale::patch(call, target).await?)),
        ("token", _) => token(call, target).await,
        ("eviction", _) => eviction::evict(call, target).await,
        ("binding", _) => bind(call, target, target).await,
        ("finalize", _) => finalize(call, target).await,
        (_, "get") => {
            let output = call.output()?;
            verbs::get::get(call, target, output).await
        }
        (_, "update") => written(call, target, verbs::update::update(call, target).await?),
        _ => written(call, target, verbs::patch::patch(call, target).await?),
    }
}

/// A kind that only answers.
pub(crate) async fn virtual_kind(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    if !target.served.resource.verbs.contains(&call.info.verb) {
        return Err(not_allowed());
    }
    match target.plural() {
        "bindings" => {
            let name = object::name(&decode::parse(&call.body, call.content_type())?.object).to_owned();
            let pods = call.catalog.find("", "v1", "pods").ok_or_else(ApiError::no_such_path)?.clone();
            let pod = Target { subresource: "binding".to_owned(), ..Target::new(pods, &target.namespace, &name) };
            bind(call, target, &pod).await
        }
        "componentstatuses" => component_status(call, target),
        _ => review(call, target).await,
    }
}

/// The reviews: nothing is stored. Webhooks are asked about them, policies are not.
async fn review(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    negotiate::output_without_table(&call.headers)?;
    let mut review = decode::parse(&call.body, call.content_type())?.object;
    decode::check_type(&mut review, &target.gvk())?;
    let options = WriteOptions::parse(&call.query, WriteKind::Create, call.user_agent())?;
    let review = reviewed::action(call, target, options.dry_run, review, |_| Ok(())).await?;
    Ok(answer::json(201, &call.server.auth.review(&call.info, &call.user, review).await?))
}

/// A token for a service account.
async fn token(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    negotiate::output_without_table(&call.headers)?;
    let mut request = decode::parse(&call.body, call.content_type())?.object;
    decode::check_type(&mut request, &Gvk::new("authentication.k8s.io", "v1", "TokenRequest"))?;
    let options = WriteOptions::parse(&call.query, WriteKind::Create, call.user_agent())?;
    let (tokens, now) = (&call.server.auth.tokens, Timestamp::now());
    let complete = |request: &mut Value| tokens.complete(request, &target.namespace, &target.name, now);
    let request = reviewed::action(call, target, options.dry_run, request, complete).await?;
    Ok(answer::json(201, &tokens.request(request, &target.namespace, &target.name, now)?))
}

/// The store is the one component there is.
fn component_status(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    let healthy = json!({
        "metadata": { "name": "etcd-0" },
        "conditions": [{ "type": "Healthy", "status": "True", "message": "ok" }],
    });
    if call.info.verb == "list" {
        return Ok(answer::json(200, &verbs::list::whole(target, &json!({}), &[healthy])));
    }
    if target.name != "etcd-0" {
        return Err(target.not_found());
    }
    let mut status = healthy;
    status["kind"] = json!(target.served.kind());
    status["apiVersion"] = json!("v1");
    Ok(answer::json(200, &status))
}

fn is_named(target: &Target, kind: &str, object: &Value) -> Result<(), ApiError> {
    let name = object::name(object);
    if !name.is_empty() && name != target.name {
        return Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    Ok(())
}

fn success() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 })
}

/// Puts a pod on a node, once. `asked` is what the request names: the pod's binding, or all bindings.
async fn bind(call: &Call, asked: &Target, pod: &Target) -> Result<Answer, ApiError> {
    let binding = decode::parse(&call.body, call.content_type())?.object;
    let options = WriteOptions::parse(&call.query, WriteKind::Create, call.user_agent())?;
    let is_whole = |binding: &mut Value| {
        is_named(pod, "Binding", binding)?;
        if bound_to(binding).is_empty() {
            return Err(ApiError::bad_request("target.name: Required value: the node to bind the pod to"));
        }
        Ok(())
    };
    let binding = reviewed::action(call, asked, options.dry_run, binding, is_whole).await?;
    let node = bound_to(&binding);
    change(&Call::already_admitted(call, pod), pod, &options, |old| {
        let current = old.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if !current.is_empty() {
            return Err(pod.conflict(format!("pod {} is already assigned to node {current:?}", pod.name)));
        }
        let mut new = old.clone();
        new["spec"]["nodeName"] = json!(node);
        Ok(Candidate::Untracked(new))
    })
    .await?;
    Ok(answer::json(201, &success()))
}

fn bound_to(binding: &Value) -> &str {
    binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default()
}

/// Lets a namespace's own finalizers be changed; the last one gone, so is the namespace.
async fn finalize(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    let options = WriteOptions::parse(&call.query, WriteKind::Update, call.user_agent())?;
    let wanted = decode::parse(&call.body, call.content_type())?.object;
    verbs::update::check_name(target, &wanted)?;
    let finalizers = wanted.pointer("/spec/finalizers").cloned().unwrap_or_else(|| json!([]));
    let outcome = change(call, target, &options, |old| {
        // Of another namespace of that name, or of a state that is over, it says nothing about this one.
        prepare::check_uid(target, &wanted, old)?;
        prepare::check_resource_version(target, &wanted, old)?;
        let mut new = old.clone();
        new["spec"]["finalizers"] = finalizers.clone();
        Ok(Candidate::Untracked(new))
    })
    .await?;
    Ok(answer::json(200, outcome.object()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_namespace_is_finalized_as_it_is_and_not_in_the_name_of_another() {
        let server = TestServer::start().await;
        let namespaces = "/api/v1/namespaces";
        let first = server.post(namespaces, &json!({"metadata": {"name": "a"}})).await;
        let path = format!("{namespaces}/a");
        assert_eq!(server.send("DELETE", &path, &Value::Null).await.0, 200);
        let finalize = format!("{path}/finalize");
        let metadata = |object: &Value| json!({"name": "a", "uid": object["metadata"]["uid"]});
        let emptied = |metadata: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        assert_eq!(server.send("PUT", &finalize, &emptied(metadata(&first))).await.0, 200);
        let second = server.post(namespaces, &json!({"metadata": {"name": "a"}})).await;
        let mut past = metadata(&second);
        past["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
        for (metadata, why) in [(metadata(&first), "UID in precondition"), (past, "the object has been modified")] {
            let (code, status) = server.send("PUT", &finalize, &emptied(metadata)).await;
            assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
            assert!(status["message"].as_str().is_some_and(|text| text.contains(why)), "{status}");
        }
        assert_eq!(server.get(&path).await["spec"]["finalizers"], json!(["kubernetes"]));
        let mut now = metadata(&second);
        now["resourceVersion"] = second["metadata"]["resourceVersion"].clone();
        assert_eq!(server.send("PUT", &finalize, &emptied(now)).await.0, 200);
    }
}

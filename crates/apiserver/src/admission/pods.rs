//! What a new pod is given by the RuntimeClass that it names.

use croft_api::runtime_class;
use croft_meta::{ApiError, object};
use serde_json::Value;

use crate::call::Call;

const CLASSES: &str = "node.k8s.io/runtimeclasses";

pub(super) async fn fill_overhead(call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    let name = object::name(pod).to_owned();
    let refused = |why: &str| ApiError::forbidden("", "pods", &name, why);
    let class = match runtime_class::named(pod) {
        Some(class) => Some(find(call, class).await?.ok_or_else(|| refused(&runtime_class::not_found(class)))?),
        None => None,
    };
    runtime_class::fill_overhead(pod, class.as_ref()).map_err(refused)
}

async fn find(call: &Call, name: &str) -> Result<Option<Value>, ApiError> {
    let classes = call.server.cache.collection(CLASSES);
    if classes.get(name).is_none() {
        // One that was made just now counts.
        call.server.cache.fresh().await?;
    }
    Ok(classes.get(name).map(|class| class.json()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::TestServer;

    const PODS: &str = "/api/v1/namespaces/default/pods";
    const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_runtime_class_is_there_and_says_what_it_takes() {
        let server = TestServer::start().await;
        let pod = |name: &str, class: Value, overhead: Value| {
            json!({"metadata": {"name": name}, "spec": {"runtimeClassName": class, "overhead": overhead,
                "containers": [{"name": "c", "image": "i"}]}})
        };
        let class = json!({"metadata": {"name": "vm"}, "handler": "h", "overhead": {"podFixed": {"memory": "64Mi"}}});
        let asking = pod("a", json!("vm"), Value::Null);
        let (code, status) = server.send("POST", PODS, &asking).await;
        let why = "pods \"a\" is forbidden: pod rejected: RuntimeClass \"vm\" not found";
        assert!(code == 403 && status["message"] == why, "{status}");
        server.post(CLASSES, &class).await;
        assert_eq!(server.post(PODS, &asking).await["spec"]["overhead"], json!({"memory": "64Mi"}));
        let other = json!({"memory": "1Mi"});
        for (class, words) in [(json!("vm"), "doesn't match"), (Value::Null, "without corresponding")] {
            let (code, status) = server.send("POST", PODS, &pod("b", class, other.clone())).await;
            assert!(code == 403 && status.to_string().contains(words), "{status}");
        }
        server.send("DELETE", &format!("{CLASSES}/vm"), &Value::Null).await;
        assert_eq!(server.send("POST", PODS, &pod("c", json!("vm"), Value::Null)).await.0, 403);
    }
}

use serde_json::{Value, json};

use crate::testing::TestServer;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A refusal may rest on other objects than the one that is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_believed_only_when_all_is_known() {
    let (server, store) = TestServer::start_lagging().await;
    server.post(MAPS, &json!({"metadata": {"name": "first"}})).await;
    let count = server.get(MAPS).await["items"].as_array().map_or(0, Vec::len);
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": count.to_string()}}});
    server.post("/api/v1/namespaces/default/resourcequotas", &quota).await;
    let second = json!({"metadata": {"name": "second"}});
    let (code, refusal) = server.send("POST", MAPS, &second).await;
    assert_eq!(code, 403, "{refusal}");
    // Another server makes room.
    store.delete_elsewhere("core/configmaps", "default/first").await;
    server.post(MAPS, &second).await;
    let (code, refusal) = server.send("POST", MAPS, &json!({"metadata": {"name": "third"}})).await;
    assert_eq!(code, 403, "{refusal}");
    assert_eq!(server.send("DELETE", &format!("{MAPS}/second"), &Value::Null).await.0, 200);
}

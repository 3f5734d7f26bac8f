//! A real API server in this process with one node, whose agent is the test's.

use bytes::Bytes;
use croft_apiserver::{Config, Listen, Running};
use croft_store::{Embedded, EmbeddedOptions};
use croft_testkit::{Answer, Client, Endpoint};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::agent::Agent;

pub(crate) const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub(crate) const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub(crate) const SUB: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";
const NODE: &str = "n1";

pub(crate) struct Cluster {
    pub(crate) server: Running,
    pub(crate) endpoint: Endpoint,
    pub(crate) client: Client,
    pub(crate) agent: Agent,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default()).expect("a store");
        let config = Config {
            listen: vec![Listen { addr: "127.0.0.1:0".parse().expect("an address"), is_required: true }],
            ..Config::new(dir.path().to_owned(), store)
        };
        let server = croft_apiserver::start(config).await.expect("the server starts");
        let endpoint = Endpoint::from_kubeconfig(&server.kubeconfig).expect("an endpoint");
        let identity = server.agent_identity(NODE, &["127.0.0.1".parse().expect("an address")]).expect("an identity");
        let agent = Agent::start(&identity).await;
        let client = endpoint.client().expect("a client");
        let cluster = Self { server, endpoint, client, agent, _dir: dir };
        cluster.add_node(NODE, cluster.agent.address.port()).await;
        cluster
    }

    /// A node whose agent is at a port of this machine.
    pub(crate) async fn add_node(&self, name: &str, port: u16) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.internal(Method::POST, "/api/v1/nodes", &node).await;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        self.internal(Method::PATCH, &format!("/api/v1/nodes/{name}/status"), &status).await;
    }

    /// As a part of Croft calls it.
    pub(crate) async fn internal(&self, method: Method, path: &str, body: &Value) -> Value {
        let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("a request");
        let answer = self.server.local().oneshot(request).await.expect("an answer");
        let code = answer.status();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        assert!(code.is_success(), "{path}: {code}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }

    pub(crate) async fn vm(&self, name: &str, spec: Value) -> Value {
        let mut vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"template": {"spec": {"domain": {
                "devices": {}, "memory": {"guest": "64Mi"}, "resources": {"requests": {"memory": "64Mi"}},
            }}}},
        });
        for (field, value) in spec.as_object().expect("a spec") {
            vm["spec"][field] = value.clone();
        }
        self.client.post(VMS, &vm).await.expect("an answer").ok().expect("a machine")
    }

    /// An instance in some state on the node. `owner` is the machine that it belongs to.
    pub(crate) async fn vmi(&self, name: &str, phase: &str, conditions: &[&str], owner: Option<&Value>) -> Value {
        let conditions: Vec<Value> = conditions.iter().map(|ty| json!({"type": ty, "status": "True"})).collect();
        let mut vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name},
            "spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}, "terminationGracePeriodSeconds": 30},
        });
        if let Some(vm) = owner {
            vmi["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": vm["metadata"]["name"],
                "uid": vm["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        self.internal(Method::POST, VMIS, &vmi).await;
        // What is new is pending, whoever makes it.
        let status = json!({"status": {"phase": phase, "nodeName": NODE, "conditions": conditions}});
        self.internal(Method::PATCH, &format!("{VMIS}/{name}"), &status).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.client.get(path).await.expect("an answer").ok().expect("an object")
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.client.put(&format!("{SUB}/{path}"), body).await.expect("an answer")
    }

    /// Expects a refusal with this code and these words.
    pub(crate) async fn refused(&self, path: &str, body: &Value, code: u16, words: &str) {
        let answer = self.put(path, body).await;
        assert!(answer.status == code && answer.text().contains(words), "{path}: {} {}", answer.status, answer.text());
        assert_eq!(answer.json()["kind"], "Status", "{path}");
    }

    pub(crate) async fn accepted(&self, path: &str, body: &Value) {
        let answer = self.put(path, body).await;
        assert_eq!((answer.status, answer.text().as_str()), (202, ""), "{path}");
    }
}

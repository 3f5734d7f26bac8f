//! The definitions of well-known operators install and work: written out here in the shape of cert-manager's, Cluster
//! API's and KubeVirt's, small enough to read.

use croft_e2e::on_every_server;

on_every_server!(certificates, clusters, later_defaults, virtual_machines);

mod body {
    use croft_testkit::{Call, Client, Server, eventually};
    use http::Method;
    use serde_json::{Value, json};

    fn fixture(name: &str) -> Vec<Value> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("operators").join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    fn is_established(definition: &Value) -> bool {
        let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        holds("Established") && holds("NamesAccepted")
    }

    /// Installs every definition of a file; with Croft each is established by the very write, and served with that.
    async fn install(server: &Server, name: &str) -> Client {
        let client = server.client().expect("a client");
        for definition in fixture(name) {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let made =
                client.post(path, &definition).await.expect("an answer").ok().expect("the definition is accepted");
            assert!(!server.is_croft() || is_established(&made), "{}", made["status"]);
            let text =
                |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let one = format!("{path}/{}", text("/metadata/name"));
            eventually("the definition is established", async || {
                let definition = client.get(&one).await?.ok()?;
                anyhow::ensure!(is_established(&definition), "{}", definition["status"]);
                Ok(())
            })
            .await;
            let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
            for version in definition["spec"]["versions"].as_array().expect("versions") {
                let version = version["name"].as_str().expect("a name");
                let path = format!("/apis/{group}/{version}/{plural}");
                eventually("it is served", async || client.get(&path).await?.ok()).await;
            }
        }
        client
    }

    async fn make(client: &Client, path: &str, body: &Value) -> Value {
        client.post(path, body).await.expect("an answer").ok().expect("made")
    }

    /// Refused as invalid, naming `field`.
    async fn refused(client: &Client, path: &str, body: &Value, field: &str) {
        let answer = client.post(path, body).await.expect("an answer");
        let causes = answer.json()["details"]["causes"].as_array().cloned().unwrap_or_default();
        let named = causes.iter().any(|c| c["field"].as_str().is_some_and(|f| f.contains(field)));
        assert!(answer.status == 422 && named, "{} {}", answer.status, answer.text());
    }

    async fn columns(server: &Server, resource: &str) -> String {
        server.kubectl().expect("kubectl").ok(&["get", resource]).await.stdout
    }

    pub(crate) async fn certificates(server: &Server) {
        let client = install(server, "certificates").await;
        let path = "/apis/certs.example.io/v1/namespaces/default/certificates";
        let certificate = |spec: Value| json!({"apiVersion": "certs.example.io/v1", "kind": "Certificate", "metadata": {"name": "web"}, "spec": spec});
        let good = json!({"secretName": "web-tls", "dnsNames": ["example.com"], "issuerRef": {"name": "ca"},
            "usages": ["server auth"], "privateKey": {}, "unknown": {"pruned": true}});
        let made = make(&client, path, &certificate(good.clone())).await;
        assert_eq!(made["spec"]["issuerRef"]["kind"], "Issuer", "defaulted");
        assert_eq!(made["spec"]["privateKey"], json!({"algorithm": "RSA", "rotationPolicy": "Never", "size": 2048}));
        assert!(made["spec"]["unknown"].is_null(), "pruned");
        let with = |pointer: &str, value: Value| {
            let mut spec = good.clone();
            *spec.pointer_mut(pointer).expect("a field") = value;
            certificate(spec)
        };
        refused(&client, path, &with("/issuerRef", json!({})), "spec.issuerRef.name").await;
        refused(&client, path, &with("/usages", json!(["no such usage"])), "spec.usages[0]").await;
        refused(&client, path, &with("/privateKey", json!({"algorithm": "RSA", "size": 1})), "spec.privateKey").await;
        refused(&client, path, &with("/dnsNames", json!("example.com")), "spec.dnsNames").await;
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Issued"}]}});
        let patched = client.patch(&format!("{path}/web/status"), "merge-patch", &status).await.expect("an answer");
        assert_eq!(patched.ok().expect("patched")["metadata"]["generation"], 1);
        let table = columns(server, "certificates.certs.example.io").await;
        assert!(table.contains("READY") && table.contains("True") && table.contains("web-tls"), "{table}");
        let issuer = json!({"apiVersion": "certs.example.io/v1", "kind": "Issuer", "metadata": {"name": "ca"},
            "spec": {"ca": {"secretName": "x"}, "selfSigned": {}}});
        let issuers = "/apis/certs.example.io/v1/namespaces/default/issuers";
        refused(&client, issuers, &issuer, "spec").await;
    }

    pub(crate) async fn clusters(server: &Server) {
        let client = install(server, "clusters").await;
        let old = "/apis/cluster.example.io/v1beta1/namespaces/default/clusters";
        let new = "/apis/cluster.example.io/v1beta2/namespaces/default/clusters";
        let body = json!({"apiVersion": "cluster.example.io/v1beta1", "kind": "Cluster", "metadata": {"name": "c"},
            "spec": {"clusterNetwork": {"pods": {"cidrBlocks": ["10.0.0.0/16"]}}, "controlPlaneEndpoint": {"host": "h", "port": 6443}}});
        make(&client, old, &body).await;
        let read = client.get(&format!("{new}/c")).await.expect("an answer").ok().expect("the other version");
        assert_eq!(read["apiVersion"], "cluster.example.io/v1beta2");
        assert_eq!(read["spec"]["paused"], false, "defaulted by the version in the store");
        let listed = client.get(old).await.expect("an answer").ok().expect("a list");
        assert_eq!(listed["items"][0]["apiVersion"], "cluster.example.io/v1beta1");
        let immutable = json!({"spec": {"controlPlaneEndpoint": {"host": "other"}}});
        let answer = client.patch(&format!("{new}/c"), "merge-patch", &immutable).await.expect("an answer");
        assert!(
            answer.status == 422 && answer.text().contains("controlPlaneEndpoint is immutable"),
            "{}",
            answer.text()
        );
        let group = client.get("/apis/cluster.example.io").await.expect("an answer").ok().expect("the group");
        assert_eq!(group["preferredVersion"]["version"], "v1beta2");

        let machines = "/apis/cluster.example.io/v1beta2/namespaces/default/machines";
        let machine = |spec: Value| json!({"apiVersion": "cluster.example.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"}, "spec": spec});
        refused(&client, machines, &machine(json!({"bootstrap": {}})), "spec.clusterName").await;
        let made = make(
            &client,
            machines,
            &machine(json!({"clusterName": "c", "bootstrap": {"configRef": {"kind": "K", "name": "n"}},
            "taints": [{"key": "a", "effect": "NoSchedule"}]})),
        )
        .await;
        assert_eq!(made["spec"]["taints"][0]["propagation"], "Always", "defaulted within list items");
        let apply = json!({"apiVersion": "cluster.example.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}});
        let answer =
            client.patch(&format!("{machines}/m?fieldManager=t"), "apply-patch", &apply).await.expect("an answer");
        let taints = answer.ok().expect("applied")["spec"]["taints"].as_array().map(Vec::len);
        assert_eq!(taints, Some(2), "a list with keys is merged");
        let table = columns(server, "machines.cluster.example.io").await;
        assert!(table.contains("CLUSTER") && table.contains("PHASE"), "{table}");
    }

    pub(crate) async fn virtual_machines(server: &Server) {
        let client = install(server, "virtual-machines").await;
        let path = "/apis/virt.example.io/v1/namespaces/default/virtualmachines";
        let vm = json!({"apiVersion": "virt.example.io/v1", "kind": "VirtualMachine", "metadata": {"name": "v"},
            "spec": {"runStrategy": "Always", "replicas": 1, "template": {"metadata": {"labels": {"a": "b"}, "creationTimestamp": null},
                "spec": {"domain": {"devices": {"anything": {"goes": [1, "two"]}}, "memory": {"guest": "1Gi"}}}}}});
        let made = make(&client, path, &vm).await;
        assert_eq!(made["spec"]["template"]["spec"]["domain"]["devices"]["anything"]["goes"], json!([1, "two"]));
        assert_eq!(made["metadata"]["generation"], 1);
        let mut both = vm.clone();
        both["metadata"]["name"] = json!("w");
        both["spec"]["running"] = json!(true);
        refused(&client, path, &both, "spec").await;
        let scale = client.get(&format!("{path}/v/scale")).await.expect("an answer").ok().expect("a scale");
        assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
        let kubectl = server.kubectl().expect("kubectl");
        kubectl.ok(&["scale", "virtualmachine.virt.example.io", "v", "--replicas=3"]).await;
        let scaled = client.get(&format!("{path}/v")).await.expect("an answer").ok().expect("the machine");
        assert_eq!((&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]), (&json!(3), &json!(2)));
        let status = json!({"status": {"printableStatus": "Running", "ready": true, "whatever": {"deep": 1}}});
        let patched = client.patch(&format!("{path}/v/status"), "merge-patch", &status).await.expect("an answer");
        let patched = patched.ok().expect("patched");
        assert_eq!(patched["status"]["whatever"]["deep"], 1, "unknown fields are preserved where the schema says so");
        assert_eq!(patched["metadata"]["generation"], 2);
        let table = columns(server, "virtualmachines.virt.example.io").await;
        assert!(table.contains("STATUS") && table.contains("Running") && table.contains("READY"), "{table}");
        let explained =
            kubectl.ok(&["explain", "virtualmachine.spec", "--api-version=virt.example.io/v1"]).await.stdout;
        assert!(explained.contains("runStrategy"), "{explained}");
    }

    /// A default that a definition gets later shows in the objects that were there before, and changes nothing else.
    pub(crate) async fn later_defaults(server: &Server) {
        let client = server.client().expect("a client");
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let size = |size: Value| {
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "name": {"type": "string"}, "size": size}}}})
        };
        let definition = json!({"metadata": {"name": "boxes.later.example.com"}, "spec": {
            "group": "later.example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": size(json!({"type": "integer"}))}}]}});
        client.post(path, &definition).await.expect("an answer").ok().expect("accepted");
        let boxes = "/apis/later.example.com/v1/namespaces/default/boxes";
        let body = json!({"apiVersion": "later.example.com/v1", "kind": "Box", "metadata": {"name": "old"},
            "spec": {"name": "a"}});
        let old = eventually("it is served", async || client.post(boxes, &body).await?.ok()).await;
        assert_eq!(old["spec"], json!({"name": "a"}));
        let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
            "value": size(json!({"type": "integer", "default": 3}))}]);
        let one = format!("{path}/boxes.later.example.com");
        let patch = Call::new(Method::PATCH, &one).body("application/json-patch+json", patch.to_string());
        client.send(patch).await.expect("an answer").ok().expect("patched");
        let read = eventually("the default shows", async || {
            let read = client.get(&format!("{boxes}/old")).await?.ok()?;
            anyhow::ensure!(read["spec"]["size"] == 3, "{read}");
            Ok(read)
        })
        .await;
        for field in ["resourceVersion", "generation", "uid"] {
            assert_eq!(read["metadata"][field], old["metadata"][field], "{field}");
        }
        let listed = client.get(boxes).await.expect("an answer").ok().expect("a list");
        assert_eq!(listed["items"][0]["spec"]["size"], 3);
    }
}

//! Behaviours of Kubernetes' conformance list that no other suite has: kinds that run through their lives, and the rest of the
//! API's machinery. `tests/conformance/behaviours.yaml` tells which test here stands for which behaviour.

use croft_e2e::conformance_lives::{Life, live};
use croft_testkit::{Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

async fn start() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

fn template(label: &str) -> Value {
    json!({"metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_run_through_their_lives() {
    let (_server, client) = start().await;
    let selector = json!({"matchLabels": {"app": "x"}});
    let set = json!({"replicas": 1, "selector": selector, "template": template("x")});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    let condition = json!({"conditions": [{"type": "StatusUpdate", "status": "True"}]});
    let lives = [
        Life::of("apps/v1", "deployments", json!({"spec": set})).with_status(condition.clone()).with_scale(),
        Life::of("apps/v1", "replicasets", json!({"spec": set})).with_status(condition.clone()).with_scale(),
        Life::of(
            "apps/v1",
            "statefulsets",
            json!({"spec": {"serviceName": "s", "selector": selector, "template": template("x")}}),
        )
        .with_status(json!({"replicas": 0, "conditions": [{"type": "StatusUpdate", "status": "True"}]}))
        .with_scale(),
        Life::of("apps/v1", "daemonsets", json!({"spec": {"selector": selector, "template": template("x")}}))
            .with_status(condition.clone()),
        Life::of("apps/v1", "controllerrevisions", json!({"revision": 1, "data": {"a": "b"}})),
        Life::of(
            "v1",
            "replicationcontrollers",
            json!({"spec": {"replicas": 1, "selector": {"app": "x"}, "template": template("x")}}),
        )
        .with_status(condition.clone())
        .with_scale(),
        Life::of("v1", "podtemplates", json!({"template": template("x")})),
        Life::of("batch/v1", "jobs", json!({"spec": job})).with_status(json!({"startTime": "2026-01-02T03:04:05Z"})),
        Life::of(
            "batch/v1",
            "cronjobs",
            json!({"spec": {"schedule": "*/5 * * * *", "suspend": true, "jobTemplate": {"spec": job}}}),
        )
        .with_status(json!({"lastScheduleTime": "2026-01-02T03:04:05Z"})),
        Life::of("policy/v1", "poddisruptionbudgets", json!({"spec": {"minAvailable": 1, "selector": selector}}))
            .with_status(json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}))
            .also_elsewhere(),
        Life::of("v1", "pods", json!({"spec": template("x")["spec"]}))
            .with_status(json!({"message": "patched"}))
            .with_change(json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}})),
    ];
    for life in lives {
        live(&client, &life).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_and_storage_run_through_their_lives() {
    let (_server, client) = start().await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"},
        "storageClassName": "none"});
    let rule = json!({"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}});
    let lives = [
        Life::of("v1", "services", json!({"spec": {"ports": [{"port": 80}]}}))
            .with_status(json!({"conditions": [{"type": "Patched", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]})),
        Life::of("v1", "endpoints", json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]})),
        Life::of("discovery.k8s.io/v1", "endpointslices", json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []})),
        Life::of("networking.k8s.io/v1", "ingresses", json!({"spec": {"rules": [rule]}}))
            .with_status(json!({"loadBalancer": {"ingress": [{"ip": "169.1.1.1"}]}})),
        Life::cluster("networking.k8s.io/v1", "ingressclasses", json!({"spec": {"controller": "example.com/c"}})),
        Life::of("v1", "persistentvolumeclaims", json!({"spec": claim}))
            .with_status(json!({"conditions": [{"type": "StatusPatched", "status": "True"}]})),
        Life::cluster("v1", "persistentvolumes", json!({"spec": volume})).with_status(json!({"message": "patched"})),
        Life::cluster("storage.k8s.io/v1", "storageclasses", json!({"provisioner": "example.com/p"})),
        Life::cluster("storage.k8s.io/v1", "csidrivers", json!({"spec": {"attachRequired": false}})),
        Life::cluster("storage.k8s.io/v1", "csinodes", json!({"spec": {"drivers": []}})),
        Life::of("storage.k8s.io/v1", "csistoragecapacities", json!({"storageClassName": "c", "capacity": "1Gi"})),
        Life::cluster("storage.k8s.io/v1", "volumeattachments", json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}))
            .with_status(json!({"attached": false})),
    ];
    for life in lives {
        live(&client, &life).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_kinds_run_through_their_lives() {
    let (_server, client) = start().await;
    let level =
        json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 2, "limitResponse": {"type": "Reject"}}});
    let rules = json!([{"subjects": [{"kind": "User", "user": {"name": "nobody"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/x"]}]}]);
    let constraints = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}]});
    let policy = json!({"matchConstraints": constraints, "validations": [{"expression": "true"}]});
    let condition = json!({"conditions": [{"type": "Dangling", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    let registration = "admissionregistration.k8s.io/v1";
    let lives = [
        Life::of("v1", "configmaps", json!({"data": {"a": "b"}})),
        Life::of("v1", "secrets", json!({"data": {"a": "Yg=="}})),
        Life::of("v1", "serviceaccounts", json!({"automountServiceAccountToken": false})),
        Life::of("v1", "limitranges", json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}}))
            .also_elsewhere(),
        Life::of("v1", "resourcequotas", json!({"spec": {"hard": {"pods": "5"}}})),
        Life::of(
            "v1",
            "events",
            json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "R", "type": "Normal"}),
        ),
        Life::of(
            "events.k8s.io/v1",
            "events",
            json!({"regarding": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "R", "type": "Normal",
            "action": "Do", "reportingController": "c", "reportingInstance": "i", "eventTime": "2026-01-02T03:04:05.123456Z"}),
        ),
        Life::of(
            "coordination.k8s.io/v1",
            "leases",
            json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 30}}),
        ),
        Life::cluster("node.k8s.io/v1", "runtimeclasses", json!({"handler": "h"})),
        Life::cluster("scheduling.k8s.io/v1", "priorityclasses", json!({"value": 7})).with_fixed(json!({"value": 8})),
        Life::cluster("v1", "nodes", json!({}))
            .with_status(json!({"conditions": [{"type": "Patched", "status": "True"}]})),
        Life::cluster(
            "flowcontrol.apiserver.k8s.io/v1",
            "flowschemas",
            json!({"spec": {"matchingPrecedence": 9999,
            "priorityLevelConfiguration": {"name": "global-default"}, "rules": rules}}),
        )
        .with_status(condition.clone()),
        Life::cluster("flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", json!({"spec": level}))
            .with_status(condition),
        Life::cluster(registration, "validatingadmissionpolicies", json!({"spec": policy}))
            .with_status(json!({"observedGeneration": 1})),
        Life::cluster(
            registration,
            "validatingadmissionpolicybindings",
            json!({"spec": {"policyName": "none", "validationActions": ["Deny"]}}),
        ),
        Life::cluster("certificates.k8s.io/v1", "certificatesigningrequests", csr()),
    ];
    for life in lives {
        live(&client, &life).await;
    }
}

/// For a signer that nobody is.
fn csr() -> Value {
    const REQUEST: &str = include_str!("conformance/request.b64");
    json!({"spec": {"request": REQUEST.trim(), "signerName": "example.com/nobody", "usages": ["client auth"]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_names_what_there_is() {
    let (_server, client) = start().await;
    let version = client.get("/version").await.expect("an answer").ok().expect("a version");
    assert!(version["major"].as_str().is_some_and(|major| major.parse::<u32>().is_ok()), "{version}");
    let groups = client.get("/apis").await.expect("an answer").ok().expect("groups");
    for group in groups["groups"].as_array().expect("a list") {
        let name = group["name"].as_str().expect("a name");
        let one = client.get(&format!("/apis/{name}")).await.expect("an answer").ok().expect("a group");
        assert_eq!(one["preferredVersion"], group["preferredVersion"], "{name}");
        let versions = one["versions"].as_array().expect("versions");
        assert!(versions.contains(&one["preferredVersion"]), "{one}");
        for version in versions {
            let path = format!("/apis/{}", version["groupVersion"].as_str().expect("a version"));
            let resources = client.get(&path).await.expect("an answer").ok().expect("resources");
            assert_eq!(resources["groupVersion"], version["groupVersion"]);
            assert!(resources["resources"].as_array().is_some_and(|list| !list.is_empty()), "{path}");
        }
    }
}

/// The resources of a group's version, as the aggregated form of discovery tells them.
fn aggregated<'a>(groups: &'a Value, group: &str, version: &str) -> &'a Vec<Value> {
    let groups = groups["items"].as_array().expect("groups");
    let group = groups.iter().find(|it| it["metadata"]["name"].as_str().unwrap_or_default() == group);
    let versions = group.expect("the group")["versions"].as_array().expect("versions");
    let version = versions.iter().find(|it| it["version"] == version).expect("the version");
    assert_eq!(version["freshness"], "Current");
    version["resources"].as_array().expect("resources")
}

async fn webhooks_are_in_discovery(client: &Client) {
    let get = async |path: &str| client.get(path).await.expect("an answer").ok().expect("read");
    let (name, version) = ("admissionregistration.k8s.io", "admissionregistration.k8s.io/v1");
    let groups = get("/apis").await;
    let group = groups["groups"].as_array().expect("groups").iter().find(|it| it["name"] == name).expect("the group");
    let versions = json!({"groupVersion": version, "version": "v1"});
    assert!(group["versions"].as_array().is_some_and(|all| all.contains(&versions)), "{group}");
    assert_eq!(get(&format!("/apis/{name}")).await["versions"], group["versions"]);
    let list = get(&format!("/apis/{version}")).await;
    for (plural, kind) in [
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    ] {
        let found = list["resources"].as_array().expect("resources").iter().find(|it| it["name"] == plural);
        let found = found.unwrap_or_else(|| panic!("no {plural}"));
        assert_eq!((&found["kind"], &found["namespaced"]), (&json!(kind), &json!(false)));
    }
}

/// The same as in the plain form.
async fn aggregated_discovery_is_whole(client: &Client) {
    let plain = client.get("/apis").await.expect("an answer").ok().expect("groups");
    let get = async |path: &str| {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let answer = client.send(Call::new(Method::GET, path).header("accept", accept)).await.expect("an answer");
        assert_eq!(answer.header("content-type"), Some(accept));
        answer.ok().expect("read")
    };
    let groups = get("/apis").await;
    assert_eq!(groups["apiVersion"], "apidiscovery.k8s.io/v2");
    let names = |list: &Value, pointer: &str| -> Vec<String> {
        let name = |it: &Value| it.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        list.as_array().into_iter().flatten().map(name).collect()
    };
    assert_eq!(names(&groups["items"], "/metadata/name"), names(&plain["groups"], "/name"));
    for (group, version, resource, kind, scope) in [
        ("apps", "v1", "deployments", "Deployment", "Namespaced"),
        ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", "Cluster"),
    ] {
        let resources = aggregated(&groups, group, version);
        let found = resources.iter().find(|it| it["resource"] == resource).expect("the resource");
        // Of the same group and version unless it says otherwise.
        assert_eq!(found["responseKind"]["kind"], kind);
        assert_eq!((&found["scope"], found["verbs"].as_array().map(Vec::len)), (&json!(scope), Some(8)));
    }
    let deployments = aggregated(&groups, "apps", "v1").iter().find(|it| it["resource"] == "deployments");
    let parts = names(&deployments.expect("deployments")["subresources"], "/subresource");
    assert!(parts.contains(&"status".to_owned()) && parts.contains(&"scale".to_owned()), "{parts:?}");
    let core = get("/api").await;
    assert!(aggregated(&core, "", "v1").iter().any(|it| it["resource"] == "pods"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_tells_what_there_is() {
    let (_server, client) = start().await;
    webhooks_are_in_discovery(&client).await;
    aggregated_discovery_is_whole(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_are_patched_finalized_and_emptied() {
    let (_server, client) = start().await;
    let namespace = "/api/v1/namespaces/conformance";
    let made = json!({"metadata": {"name": "conformance"}});
    client.post("/api/v1/namespaces", &made).await.expect("an answer").ok().expect("made");
    for (path, patch) in [
        (namespace.to_owned(), json!({"metadata": {"labels": {"patched": "yes"}}})),
        (format!("{namespace}/status"), json!({"status": {"conditions": [{"type": "Patched", "status": "True"}]}})),
    ] {
        client.patch(&path, "merge-patch", &patch).await.expect("an answer").ok().expect("patched");
    }
    let mut object = client.get(namespace).await.expect("an answer").ok().expect("there");
    assert_eq!(
        (&object["metadata"]["labels"]["patched"], &object["status"]["conditions"][0]["type"]),
        (&json!("yes"), &json!("Patched"))
    );
    object["metadata"]["labels"]["updated"] = json!("yes");
    object["spec"]["finalizers"] = json!([]);
    let updated = client.put(namespace, &object).await.expect("an answer").ok().expect("updated");
    assert_eq!(updated["metadata"]["labels"]["updated"], "yes");
    assert_eq!(updated["spec"]["finalizers"], json!(["kubernetes"]), "not by this path");
    object = updated;
    let more = json!({"type": "Updated", "status": "False", "reason": "R", "message": "m"});
    object["status"]["conditions"].as_array_mut().expect("conditions").push(more);
    client.put(&format!("{namespace}/status"), &object).await.expect("an answer").ok().expect("its status");
    object = client.get(namespace).await.expect("an answer").ok().expect("there");
    let conditions = object["status"]["conditions"].as_array().expect("conditions");
    let types: Vec<_> = conditions.iter().map(|it| (&it["type"], &it["status"])).collect();
    assert_eq!(types, [(&json!("Patched"), &json!("True")), (&json!("Updated"), &json!("False"))]);
    object["spec"]["finalizers"].as_array_mut().expect("finalizers").push(json!("example.com/hold"));
    client.put(&format!("{namespace}/finalize"), &object).await.expect("an answer").ok().expect("finalized");
    for (plural, body) in [
        ("pods", json!({"metadata": {"name": "p"}, "spec": template("x")["spec"]})),
        ("services", json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})),
    ] {
        client.post(&format!("{namespace}/{plural}"), &body).await.expect("an answer").ok().expect(plural);
    }
    client.delete(namespace).await.expect("an answer").ok().expect("deleted");
    eventually("the namespace is empty, and held", async || {
        for plural in ["pods", "services"] {
            let list = client.get(&format!("{namespace}/{plural}")).await?.ok()?;
            anyhow::ensure!(list["items"] == json!([]), "{plural}");
        }
        let left = client.get(namespace).await?.ok()?;
        anyhow::ensure!(left["spec"]["finalizers"] == json!(["example.com/hold"]), "{left}");
        Ok(())
    })
    .await;
    object = client.get(namespace).await.expect("an answer").ok().expect("held");
    object["spec"]["finalizers"] = json!([]);
    client.put(&format!("{namespace}/finalize"), &object).await.expect("an answer").ok().expect("let go");
    eventually("it is gone", async || {
        anyhow::ensure!(client.get(namespace).await?.status == 404);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_follow_the_lives_of_what_they_count() {
    let (_server, client) = start().await;
    let root = "/api/v1/namespaces/default";
    let hard = json!({"services": "5", "secrets": "5", "replicationcontrollers": "1", "count/replicasets.apps": "1"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    client.post(&format!("{root}/resourcequotas"), &quota).await.expect("an answer").ok().expect("made");
    let set = json!({"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template("x")});
    let lives = [
        ("secrets", format!("{root}/secrets"), json!({"metadata": {"name": "a"}})),
        ("services", format!("{root}/services"), json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})),
        (
            "replicationcontrollers",
            format!("{root}/replicationcontrollers"),
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 0, "selector": {"app": "x"}, "template": template("x")}}),
        ),
        (
            "count/replicasets.apps",
            "/apis/apps/v1/namespaces/default/replicasets".to_owned(),
            json!({"metadata": {"name": "a"}, "spec": set}),
        ),
    ];
    let used = async |name: &str| {
        let quota = client.get(&format!("{root}/resourcequotas/q")).await?.ok()?;
        let used = quota["status"]["used"][name].as_str().and_then(|used| used.parse::<i64>().ok());
        used.ok_or_else(|| anyhow::anyhow!("{name} is not counted yet: {quota}"))
    };
    for (name, path, object) in &lives {
        let before = eventually("what is used is told", async || used(name).await).await;
        client.post(path, object).await.expect("an answer").ok().expect(name);
        for (step, wanted) in [("comes", before + 1), ("goes", before)] {
            if step == "goes" {
                let gone = Call::new(Method::DELETE, &format!("{path}/a")).json(&json!({"gracePeriodSeconds": 0}));
                client.send(gone).await.expect("an answer").ok().expect(name);
            }
            eventually("it is counted", async || {
                let now = used(name).await?;
                anyhow::ensure!(now == wanted, "{name} {step}: {now}");
                Ok(())
            })
            .await;
        }
    }
}

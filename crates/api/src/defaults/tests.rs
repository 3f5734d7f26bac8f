//! Objects in, objects out; the outputs are what kube-apiserver 1.34 answers.

use serde_json::{Value, json};

fn defaulted(api_version: &str, kind: &str, body: Value) -> Value {
    let mut object = body;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    super::apply(&mut object);
    object
}

#[test]
fn a_deployment_is_completed_down_to_its_containers() {
    let got = defaulted(
        "apps/v1",
        "Deployment",
        json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
                "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}},
            }]}},
        }}),
    );
    assert_eq!(
        got["spec"],
        json!({
            "progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "containers": [{
                    "image": "nginx", "imagePullPolicy": "Always", "name": "c", "resources": {},
                    "livenessProbe": {
                        "failureThreshold": 3, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
                        "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1,
                    },
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30,
            }},
        })
    );
}

#[test]
fn requests_follow_limits_in_pods_only() {
    let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]});
    let pod = defaulted("v1", "Pod", json!({"spec": spec}));
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
    let set = defaulted("apps/v1", "ReplicaSet", json!({"spec": {"template": {"spec": spec}}}));
    let resources = &set["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"], Value::Null);
}

#[test]
fn pull_policies_follow_the_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
    ] {
        let pod = defaulted("v1", "Pod", json!({"spec": {"containers": [{"image": image}]}}));
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn string_data_becomes_data() {
    let got = defaulted("v1", "Secret", json!({"data": {"a": "AA=="}, "stringData": {"a": "x", "b": "y"}}));
    assert_eq!(got["data"], json!({"a": "eA==", "b": "eQ=="}));
    assert_eq!(got["type"], "Opaque");
    assert_eq!(got["stringData"], Value::Null);
}

#[test]
fn a_service_gets_its_ports_and_policies() {
    let got = defaulted("v1", "Service", json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}));
    assert_eq!(
        got["spec"],
        json!({
            "allocateLoadBalancerNodePorts": true, "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "type": "LoadBalancer",
        })
    );
    assert_eq!(got["status"], json!({"loadBalancer": {}}));
}

#[test]
fn role_bindings_name_their_group() {
    let got = defaulted(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
        ]}),
    );
    assert_eq!(got["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(got["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(got["subjects"][1]["apiGroup"], Value::Null);
}

#[test]
fn a_definition_derives_its_names() {
    let got = defaulted(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        json!({"spec": {"names": {"kind": "Foo", "plural": "foos"}, "versions": [{"name": "v1", "storage": true}]}}),
    );
    assert_eq!(got["spec"]["names"]["singular"], "foo");
    assert_eq!(got["spec"]["names"]["listKind"], "FooList");
    assert_eq!(got["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(got["status"]["storedVersions"], json!(["v1"]));
}

#[test]
fn defaulting_twice_changes_nothing() {
    for resource in crate::builtin() {
        let gvk = resource.gvk(&resource.versions[0].name);
        let once = defaulted(&gvk.api_version(), &gvk.kind, json!({"metadata": {"name": "x"}, "spec": {}}));
        assert_eq!(once, defaulted(&gvk.api_version(), &gvk.kind, once.clone()), "{gvk}");
    }
}

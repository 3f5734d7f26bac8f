//! Documents over the whole built-in catalog plus one custom resource.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::*;

fn open_api() -> OpenApi {
    OpenApi::new(Arc::new(widgets::catalog()))
}

fn ask(open_api: &OpenApi, path: &str, accept: &str, hash: &str, accepts_gzip: bool) -> Reply {
    let accept: Vec<MediaType<'_>> = accept.split(',').filter(|m| !m.is_empty()).map(MediaType::parse).collect();
    open_api.answer(&Request { path, hash, accept: &accept, accepts_gzip }, || vec![widgets::crd()])
}

fn get(open_api: &OpenApi, path: &str) -> Value {
    match ask(open_api, path, JSON, "", false) {
        Reply::Document(answer) => serde_json::from_slice(&answer.body).unwrap(),
        other => panic!("{path}: {other:?}"),
    }
}

fn documents(open_api: &OpenApi) -> Vec<(String, Value)> {
    let index = get(open_api, "/openapi/v3");
    let mut all = vec![("v2".to_owned(), get(open_api, "/openapi/v2"))];
    for name in index["paths"].as_object().unwrap().keys() {
        all.push((name.clone(), get(open_api, &format!("/openapi/v3/{name}"))));
    }
    all
}

/// Every `$ref` below a value.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|v| references(v, found));
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&'_ String, &'_ Value)| -> Vec<(String, String)> {
        item.as_object().unwrap().keys().filter(|m| *m != "parameters").map(|m| (path.clone(), m.clone())).collect()
    };
    let keys: Vec<(String, String)> = paths.iter().flat_map(of_path).collect();
    keys.into_iter()
        .map(|(path, method)| {
            let (path, item) = paths.get_key_value(&path).unwrap();
            let (method, operation) = item.as_object().unwrap().get_key_value(&method).unwrap();
            (path.as_str(), method.as_str(), operation)
        })
        .collect()
}

#[test]
fn references_lead_somewhere_and_ids_are_unique() {
    for (name, document) in documents(&open_api()) {
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{name}: {reference}");
        }
        let mut ids = HashSet::new();
        for (path, method, operation) in operations(&document) {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{name}: {method} {path}");
            assert!(operation["responses"]["200"]["description"].is_string());
        }
        assert!(!ids.is_empty(), "{name}");
    }
}

#[test]
fn every_kind_has_exactly_one_definition() {
    let document = get(&open_api(), "/openapi/v2");
    let mut kinds = HashSet::new();
    for (name, definition) in document["definitions"].as_object().unwrap() {
        for gvk in definition["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            assert!(kinds.insert(gvk.to_string()), "{name}: {gvk}");
        }
    }
    for resource in widgets::catalog().resources() {
        for version in &resource.versions {
            let gvk = resource.gvk(&version.name);
            let wanted = json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind}).to_string();
            assert!(kinds.contains(&wanted), "{gvk}");
        }
    }
}

/// kubectl refuses to apply what it finds no such parameter for.
#[test]
fn patches_say_that_fields_are_validated() {
    let open_api = open_api();
    let has = |list: &Value, name: &str| list.as_array().into_iter().flatten().any(|p| p["name"] == name);
    for (name, document) in documents(&open_api) {
        for (path, _, operation) in operations(&document).into_iter().filter(|(_, method, _)| *method == "patch") {
            let shared = &document["paths"][path]["parameters"];
            for parameter in ["fieldValidation", "dryRun"] {
                let found = has(&operation["parameters"], parameter) || has(shared, parameter);
                assert!(found, "{name}: {path} has no {parameter}");
            }
            assert_eq!(operation["x-kubernetes-action"], "patch");
            assert!(operation["x-kubernetes-group-version-kind"]["kind"].is_string());
        }
    }
}

#[test]
fn operations_are_named_as_upstream_names_them() {
    let document = get(&open_api(), "/openapi/v2");
    let cases = [
        ("/api/", "get", "getCoreAPIVersions", "core"),
        ("/apis/apps/", "get", "getAppsAPIGroup", "apps"),
        ("/apis/apps/v1/", "get", "getAppsV1APIResources", "apps_v1"),
        ("/apis/apps/v1/deployments", "get", "listAppsV1DeploymentForAllNamespaces", "apps_v1"),
        (
            "/apis/apps/v1/namespaces/{namespace}/deployments",
            "delete",
            "deleteAppsV1CollectionNamespacedDeployment",
            "apps_v1",
        ),
        (
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            "get",
            "readAppsV1NamespacedDeploymentScale",
            "apps_v1",
        ),
        ("/api/v1/namespaces/{name}/finalize", "put", "replaceCoreV1NamespaceFinalize", "core_v1"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/eviction", "post", "createCoreV1NamespacedPodEviction", "core_v1"),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "get",
            "listRbacAuthorizationV1ClusterRole",
            "rbacAuthorization_v1",
        ),
        (
            "/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}",
            "patch",
            "patchShopExampleComV1NamespacedWidget",
            "shopExampleCom_v1",
        ),
    ];
    for (path, method, id, tag) in cases {
        let operation = &document["paths"][path][method];
        assert_eq!((&operation["operationId"], &operation["tags"]), (&json!(id), &json!([tag])), "{path}");
    }
    let scale = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]["get"];
    assert_eq!(
        scale["x-kubernetes-group-version-kind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
}

#[test]
fn v2_definitions_are_as_client_go_expects_them() {
    let document = get(&open_api(), "/openapi/v2");
    let definition = |name: &str| &document["definitions"][name];
    assert_eq!(definition("io.k8s.apimachinery.pkg.util.intstr.IntOrString")["type"], "string");
    assert_eq!(definition("io.k8s.apimachinery.pkg.api.resource.Quantity")["type"], "string");
    let spec = &definition("io.k8s.api.apps.v1.Deployment")["properties"]["spec"];
    assert_eq!(spec["$ref"], "#/definitions/io.k8s.api.apps.v1.DeploymentSpec");
    assert!(spec["description"].is_string() && spec.get("allOf").is_none() && spec.get("default").is_none());
    assert!(definition("io.k8s.api.apps.v1.Deployment").get("required").is_none());
    assert!(definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON").get("type").is_none());
}

#[test]
fn the_index_leads_to_documents_that_may_be_kept() {
    let open_api = open_api();
    let index = get(&open_api, "/openapi/v3");
    let url = index["paths"]["apis/shop.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let (path, hash) = url.split_once("?hash=").unwrap();
    match ask(&open_api, path, "", hash, true) {
        Reply::Document(answer) => {
            assert!(answer.is_immutable && answer.is_gzip);
            assert_eq!(answer.etag, format!("\"{hash}\""));
            assert!(unpack(&answer.body).starts_with(b"{\"openapi\""));
        }
        other => panic!("{other:?}"),
    }
    match ask(&open_api, path, "", "OLD", true) {
        Reply::Moved(to) => assert_eq!(to, url),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hashes_change_with_the_definition() {
    let hash = |crd: Value| {
        let open_api = open_api();
        open_api.hashes(&|| vec![crd.clone()])[&Part::Version(croft_meta::GroupVersion::new("shop.example.com", "v1"))]
            .clone()
    };
    let mut changed = widgets::crd();
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("another");
    assert_eq!(hash(widgets::crd()), hash(widgets::crd()));
    assert_ne!(hash(widgets::crd()), hash(changed));
}

#[test]
fn the_format_follows_the_accept_header() {
    let open_api = open_api();
    let old = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    for (path, accept, want) in [
        ("/openapi/v2", old, Some(V2_PROTOBUF)),
        ("/openapi/v2", "", Some(JSON)),
        ("/openapi/v2", "*/*", Some(JSON)),
        ("/openapi/v2", "text/html", None),
        ("/openapi/v3/api/v1", "application/json", Some(JSON)),
        ("/openapi/v3/api/v1", V3_PROTOBUF_OLD, Some(V3_PROTOBUF)),
        ("/openapi/v3/api/v1", "text/html", None),
    ] {
        let got = match ask(&open_api, path, accept, "", true) {
            Reply::Document(answer) => Some(answer.content_type),
            Reply::NotAcceptable => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(got, want, "{path} {accept}");
    }
    for path in ["/openapi/v3/apis/nope/v1", "/openapi/v4", "/openapi"] {
        assert!(matches!(ask(&open_api, path, "", "", true), Reply::NotFound), "{path}");
    }
}

#[test]
fn little_is_kept() {
    let open_api = open_api();
    documents(&open_api);
    let _ = ask(&open_api, "/openapi/v2", V2_PROTOBUF, "", true);
    let kept: usize = open_api.cache.lock().values().map(Bytes::len).sum();
    assert!(kept < 1_500_000, "{kept}");
}

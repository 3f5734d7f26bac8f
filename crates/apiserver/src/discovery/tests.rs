//! Discovery of the built-in catalog and of one custom resource.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::*;
use crate::openapi::widgets;

const AGGREGATED_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn ask(path: &str, accept: &str) -> Option<Result<Answer, ApiError>> {
    let accept: Vec<MediaType<'_>> = accept.split(',').filter(|m| !m.is_empty()).map(MediaType::parse).collect();
    answer(&widgets::catalog(), path, &accept, "10.0.0.1:6443")
}

fn get(path: &str, accept: &str) -> Value {
    serde_json::from_slice(&ask(path, accept).unwrap().unwrap().body).unwrap()
}

fn find<'a>(list: &'a Value, field: &str, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|entry| entry[field] == name).unwrap()
}

#[test]
fn legacy_documents_are_as_kubernetes_writes_them() {
    assert_eq!(
        get("/api", ""),
        json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}]})
    );
    assert_eq!(
        get("/apis/autoscaling", "application/json"),
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "autoscaling",
            "versions": [{"groupVersion": "autoscaling/v2", "version": "v2"}, {"groupVersion": "autoscaling/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"}})
    );
    let apps = get("/apis/apps/v1/", "");
    assert_eq!(
        find(&apps["resources"], "name", "deployments"),
        &json!({"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["deploy"], "categories": ["all"], "storageVersionHash": "8aSe+NMegvE="})
    );
    assert_eq!(
        find(&apps["resources"], "name", "deployments/scale"),
        &json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]})
    );
}

#[test]
fn custom_resources_have_their_own_order_of_verbs_and_subresources() {
    let list = get("/apis/shop.example.com/v1", "");
    let names: Vec<&str> = list["resources"].as_array().unwrap().iter().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    assert_eq!(
        list["resources"][0]["verbs"],
        json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"])
    );
    assert_eq!(list["resources"][0]["storageVersionHash"], "1eOuwF5L+ZU=");
}

#[test]
fn storage_hashes_follow_the_stored_version() {
    for (path, name, hash) in [
        ("/apis/autoscaling/v1", "horizontalpodautoscalers", "qwQve8ut294="),
        ("/apis/events.k8s.io/v1", "events", "r2yiGXH7wu8="),
        ("/api/v1", "pods", "xPOwRZ+Yhw8="),
    ] {
        assert_eq!(find(&get(path, "")["resources"], "name", name)["storageVersionHash"], hash, "{path}");
    }
    assert!(find(&get("/api/v1", "")["resources"], "name", "bindings").get("storageVersionHash").is_none());
}

#[test]
fn aggregated_discovery_lists_every_group() {
    let core = get("/api", AGGREGATED_V2);
    assert_eq!(core["items"][0]["metadata"], json!({}));
    let groups = get("/apis", AGGREGATED_V2);
    let names: Vec<&str> =
        groups["items"].as_array().unwrap().iter().filter_map(|g| g["metadata"]["name"].as_str()).collect();
    assert_eq!(names[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
    // Those that are not of Kubernetes come last, by name.
    assert_eq!(names[names.len() - 3..], ["shop.example.com", "subresources.kubevirt.io", "upload.cdi.kubevirt.io"]);
    let custom = &groups["items"][names.len() - 3];
    let tokens = &groups["items"][names.len() - 1]["versions"][0]["resources"][0];
    assert_eq!((&tokens["resource"], &tokens["verbs"]), (&json!("uploadtokenrequests"), &json!(["create"])));
    let widgets = &custom["versions"][0]["resources"][0];
    assert_eq!(widgets["responseKind"], json!({"group": "shop.example.com", "version": "v1", "kind": "Widget"}));
    assert_eq!(
        widgets["subresources"][1]["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    let apps = &groups["items"][1]["versions"][0]["resources"][2];
    assert_eq!(
        apps,
        &json!({"resource": "deployments", "responseKind": {"group": "", "version": "", "kind": "Deployment"},
            "scope": "Namespaced", "singularResource": "deployment",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["deploy"], "categories": ["all"],
            "subresources": [
                {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                    "verbs": ["get", "patch", "update"]},
                {"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Deployment"},
                    "verbs": ["get", "patch", "update"]}]})
    );
}

#[test]
fn the_form_follows_the_accept_header() {
    let both = format!("application/json,{AGGREGATED_V2};q=0.2");
    let cases: &[(&str, &str, &str)] = &[
        ("/apis", AGGREGATED_V2, AGGREGATED),
        ("/apis", &both, AGGREGATED),
        ("/apis", "application/json", JSON),
        ("/apis", "", JSON),
        ("/apis", "*/*", JSON),
        ("/apis", "application/vnd.kubernetes.protobuf,application/json", JSON),
        // Removed upstream in 1.34; clients that ask for it accept plain JSON as well.
        ("/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", JSON),
        ("/apis/apps/v1", &format!("{AGGREGATED_V2},application/json"), JSON),
    ];
    for (path, accept, content_type) in cases {
        let answer = ask(path, accept).unwrap().unwrap();
        assert_eq!(answer.content_type, *content_type, "{path} {accept}");
        assert_eq!(answer.etag.is_some(), *content_type == AGGREGATED);
    }
    assert_eq!(ask("/apis", "text/html").unwrap().unwrap_err().code(), 406);
}

#[test]
fn unknown_groups_and_versions_are_not_answered() {
    for path in ["/apis/nope", "/apis/apps/v9", "/api/v2", "/apis/apps/v1/deployments", "/healthz"] {
        assert!(ask(path, "").is_none(), "{path}");
    }
}

#[test]
fn nothing_is_listed_twice() {
    let groups = get("/apis", AGGREGATED_V2);
    let mut seen = HashSet::new();
    for group in groups["items"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            for resource in version["resources"].as_array().unwrap() {
                let key = format!("{}/{}/{}", group["metadata"]["name"], version["version"], resource["resource"]);
                assert!(seen.insert(key.clone()), "{key}");
                assert!(!resource["verbs"].as_array().unwrap().is_empty(), "{key}");
            }
        }
    }
    assert!(seen.len() > 50);
}

#[test]
fn etags_change_with_the_content() {
    let etag = |path| ask(path, AGGREGATED_V2).unwrap().unwrap().etag.unwrap();
    assert_eq!(etag("/api"), etag("/api"));
    assert_ne!(etag("/api"), etag("/apis"));
    assert_eq!(etag("/api").len(), 130);
}

/// They can be found, and nothing can be made of them that is done with resources.
#[test]
fn kubevirts_subresources_are_listed_by_name_alone() {
    let group = get("/apis/subresources.kubevirt.io", "");
    assert_eq!(group["preferredVersion"]["groupVersion"], "subresources.kubevirt.io/v1");
    for version in ["v1", "v1alpha3"] {
        let list = get(&format!("/apis/subresources.kubevirt.io/{version}"), "");
        assert_eq!(
            find(&list["resources"], "name", "virtualmachines/start"),
            &json!({"name": "virtualmachines/start", "singularName": "", "namespaced": true, "kind": "", "verbs": []})
        );
    }
}

use super::*;
use crate::auth::testing::{Keys, TestCache, cluster_role, cluster_role_binding, object as stored};

async fn rbac() -> (Rbac, TestCache) {
    let cache = TestCache::new([
        cluster_role(
            "reader",
            json!([
                {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
                {"verbs": ["get"], "nonResourceURLs": ["/healthz"]},
            ]),
        ),
        cluster_role_binding("readers", "reader", &[("User", "bob"), ("Group", "staff")]),
        cluster_role_binding("broken", "gone", &[("User", "eve")]),
    ])
    .await;
    (Rbac::new(&cache), cache)
}

#[tokio::test]
async fn self_review_decides_about_the_caller() {
    let (rbac, _cache) = rbac().await;
    let ask = |user, spec: Value| {
        let review = json!({"metadata": {"creationTimestamp": null}, "spec": spec});
        self_subject_access_review(&rbac, &UserInfo::new(user, &[]), review).unwrap()
    };
    let pods = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "x"}});
    let answer = ask("bob", pods.clone());
    assert_eq!(answer["kind"], "SelfSubjectAccessReview");
    assert_eq!(answer["spec"], pods);
    assert_eq!(
        answer["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"readers\" of ClusterRole \"reader\" to User \"bob\""})
    );
    assert_eq!(ask("ann", pods.clone())["status"], json!({"allowed": false}));
    assert_eq!(
        ask("eve", pods)["status"],
        json!({"allowed": false, "reason": "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"})
    );
    let health = json!({"nonResourceAttributes": {"verb": "get", "path": "/healthz"}});
    assert_eq!(ask("bob", health)["status"]["allowed"], true);
    let selectors = json!({"resourceAttributes": {"verb": "list", "resource": "pods", "fieldSelector": {"rawSelector": "a"},
        "labelSelector": {"requirements": [{"key": "a", "operator": "Zap"}, {"key": "b", "operator": "Exists"}]}}});
    assert_eq!(
        ask("bob", selectors)["status"]["evaluationError"],
        "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector partially ignored due to parse error"
    );
}

#[tokio::test]
async fn subject_review_decides_about_whom_it_names() {
    let (rbac, _cache) = rbac().await;
    let ask = |spec: Value| subject_access_review(&rbac, json!({"spec": spec})).unwrap()["status"]["allowed"].clone();
    let pods = json!({"verb": "get", "resource": "pods"});
    assert_eq!(ask(json!({"user": "bob", "resourceAttributes": pods})), true);
    assert_eq!(ask(json!({"groups": ["staff"], "resourceAttributes": pods})), true);
    assert_eq!(ask(json!({"user": "ann", "resourceAttributes": pods})), false);
    assert_eq!(ask(json!({"user": "ann", "groups": ["system:masters"], "resourceAttributes": pods})), true);

    let local =
        json!({"spec": {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "ns"}}});
    let answer = local_subject_access_review(&rbac, "ns", local.clone()).unwrap();
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(answer["metadata"]["namespace"], "ns");
}

#[tokio::test]
async fn bad_reviews_are_refused_as_upstream_does() {
    let (rbac, _cache) = rbac().await;
    let bob = UserInfo::new("bob", &[]);
    let own = |review: Value| self_subject_access_review(&rbac, &bob, review);
    let local = |review: Value| local_subject_access_review(&rbac, "default", review);
    let both = json!({"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x", "verb": "get"}});
    let selectors = json!({"resourceAttributes": {"fieldSelector": {},
        "labelSelector": {"rawSelector": "a in", "requirements": [{"key": "a", "operator": "In"}]}}});
    let table = [
        (
            own(json!({"spec": {}})),
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            own(json!({"spec": both})),
            ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes",
        ),
        (
            own(json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": {}}})),
            ".authorization.k8s.io \"\" is invalid: metadata: Invalid value: {\"name\":\"x\"}: must be empty",
        ),
        (
            own(json!({"spec": selectors})),
            ".authorization.k8s.io \"\" is invalid: [spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required, spec.resourceAttributes.labelSelector.rawSelector: Invalid value: \"a in\": may not specified at the same time as requirements, spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn']",
        ),
        (
            subject_access_review(&rbac, json!({"spec": {"resourceAttributes": {}}})),
            ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified",
        ),
        (
            local(json!({"spec": {"user": "a", "resourceAttributes": {}}})),
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"\": must match metadata.namespace",
        ),
        (
            local(json!({"spec": {"user": "a", "nonResourceAttributes": {"path": "/", "verb": "get"}}})),
            ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: disallowed on this kind of request",
        ),
    ];
    for (answer, message) in table {
        let error = answer.unwrap_err();
        assert_eq!((error.code(), error.message()), (422, message));
    }
    let elsewhere = json!({"metadata": {"namespace": "other"}, "spec": {"user": "a", "resourceAttributes": {"namespace": "other"}}});
    assert_eq!(local(elsewhere).unwrap_err().code(), 400);
}

#[tokio::test]
async fn rules_review_lists_what_the_caller_holds() {
    let (rbac, _cache) = rbac().await;
    let ask = |user, review: Value| self_subject_rules_review(&rbac, &UserInfo::new(user, &[]), &review);
    assert_eq!(ask("bob", json!({"spec": {}})).unwrap_err().message(), "no namespace on request");
    let answer = ask("bob", json!({"spec": {"namespace": "x"}})).unwrap();
    assert_eq!(
        answer["status"],
        json!({
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
            "incomplete": false,
        })
    );
    let answer = ask("eve", json!({"spec": {"namespace": "x"}})).unwrap();
    assert_eq!(answer["status"]["evaluationError"], "clusterrole.rbac.authorization.k8s.io \"gone\" not found");
}

#[tokio::test]
async fn token_review_tells_the_owner_or_why_not() {
    let keys = Keys::new();
    let cache = TestCache::new([stored("ServiceAccount", "ns", "sa", "uid-1")]).await;
    let authenticator = keys.authenticator(&cache);
    let request = json!({"spec": {"audiences": ["a", "b"]}});
    let token = keys.tokens(&cache).request(request, "ns", "sa", Timestamp::now()).unwrap()["status"]["token"].clone();
    let ask = async |spec: Value| {
        token_review(&authenticator, json!({"spec": spec})).await.map(|answer| answer["status"].clone())
    };

    let status = ask(json!({"token": token, "audiences": ["b", "c"]})).await.unwrap();
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["user"]["username"], "system:serviceaccount:ns:sa");
    assert_eq!(status["audiences"], json!(["b"]));
    assert_eq!(
        ask(json!({"token": token})).await.unwrap(),
        json!({"user": {}, "error": "[invalid bearer token, token audiences [\"a\" \"b\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]]"})
    );
    assert_eq!(ask(json!({"token": "bad"})).await.unwrap(), json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(ask(json!({})).await.unwrap_err().message(), "token is required for TokenReview in authentication");
}

#[test]
fn self_review_tells_the_caller_who_they_are() {
    let mut user = UserInfo::new("bob", &["dev"]);
    user.extra.insert("k".to_owned(), vec!["v".to_owned()]);
    let answer = self_subject_review(&user, Timestamp::UNIX_EPOCH);
    assert_eq!(answer["metadata"], json!({"creationTimestamp": "1970-01-01T00:00:00Z"}));
    assert_eq!(answer["status"]["userInfo"], json!({"username": "bob", "groups": ["dev"], "extra": {"k": ["v"]}}));
}

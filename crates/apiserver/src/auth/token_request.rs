//! `POST serviceaccounts/<name>/token`: a token for a service account that expires.

use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, Chain, FieldError, FieldPath, Gvk, object};
use croft_pki::service_account::{BoundObject, ISSUER, ObjectRef, TokenRequest};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ServiceAccountTokens;
use super::rule::strings;
use crate::cache::Collection;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// What kubelets ask for on behalf of pods that may never read the token again: such tokens live longer than they say.
const POD_SECONDS: i64 = 3607;
const EXTENDED_LIFE: Duration = Duration::from_hours(365 * 24);

impl ServiceAccountTokens {
    /// Fills in what a TokenRequest leaves out, and refuses what cannot be: what validating admission is to see.
    pub(crate) fn complete(
        &self,
        request: &mut Value,
        namespace: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        check_metadata(request, namespace, name)?;
        let account = find(&self.service_accounts, "serviceaccounts", namespace, name)?;
        let (uid, wanted_uid) = (object::uid(&account), object::uid(request));
        if !wanted_uid.is_empty() && wanted_uid != uid {
            let why = format!(
                "the UID in the token request ({wanted_uid}) does not match the UID of the service account ({uid})"
            );
            return Err(ApiError::conflict(GROUP, KIND, name, why));
        }
        let mut audiences = strings(&request["spec"]["audiences"]);
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        let seconds = lifetime(request)?;
        request["apiVersion"] = json!(format!("{GROUP}/v1"));
        request["kind"] = json!(KIND);
        for (field, value) in [("name", name), ("namespace", namespace), ("uid", uid)] {
            object::set_meta(request, field, value);
        }
        object::set_meta(request, "creationTimestamp", croft_meta::time::format_seconds(now));
        let bound_object_ref = request["spec"]["boundObjectRef"].clone();
        request["spec"] =
            json!({"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound_object_ref});
        request["status"] = json!({"token": "", "expirationTimestamp": null});
        Ok(())
    }

    /// Answers a TokenRequest for the service account `namespace`/`name`: the request with its status.
    pub(crate) fn request(
        &self,
        mut request: Value,
        namespace: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<Value, ApiError> {
        self.complete(&mut request, namespace, name, now)?;
        let audiences = strings(&request["spec"]["audiences"]);
        let seconds = lifetime(&request)?;
        let bound_to = self.bound_object(&request["spec"]["boundObjectRef"], namespace, name)?;

        let lifetime = Duration::from_secs(seconds.unsigned_abs());
        let for_this_server = audiences.iter().all(|audience| audience == ISSUER);
        let is_pods = matches!(bound_to, Some(BoundObject::Pod { .. })) && seconds == POD_SECONDS && for_this_server;
        let token = TokenRequest {
            namespace: namespace.to_owned(),
            service_account: ObjectRef { name: name.to_owned(), uid: object::uid(&request).to_owned() },
            audiences,
            lifetime: if is_pods { EXTENDED_LIFE } else { lifetime },
            bound_to,
            warn_after: is_pods.then_some(lifetime),
        };
        let id = uuid::Uuid::new_v4().to_string();
        let failed = |error| ApiError::internal(format!("failed to generate token: {}", Chain(&error)));
        let (token, _) = self.signer.mint(&token, &id, now).map_err(failed)?;

        let expires = croft_meta::time::format_unix_seconds(now.as_second().saturating_add(seconds));
        request["status"] = json!({"token": token.reveal(), "expirationTimestamp": expires});
        Ok(request)
    }

    /// What the token is to live and die with; it must exist.
    fn bound_object(&self, reference: &Value, namespace: &str, account: &str) -> Result<Option<BoundObject>, ApiError> {
        if reference.is_null() {
            return Ok(None);
        }
        let field = |field: &str| reference[field].as_str().unwrap_or_default();
        let (kind, name) = (field("kind"), field("name"));
        let gvk = object::gvk(reference);
        let found = match (gvk.group.as_str(), kind) {
            ("", "Pod") => find(&self.pods, "pods", namespace, name)?,
            ("", "Node") => find(&self.nodes, "nodes", "", name)?,
            ("", "Secret") => find(&self.secrets, "secrets", namespace, name)?,
            _ => return Err(ApiError::bad_request(format!("cannot bind token to object of type {}", describe(&gvk)))),
        };
        let bound = ObjectRef { name: name.to_owned(), uid: object::uid(&found).to_owned() };
        let pod_spec = |field: &str| found["spec"][field].as_str().unwrap_or_default();
        if kind == "Pod" && pod_spec("serviceAccountName") != account {
            let account = croft_meta::field::go_quote(account);
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {account} to pod running with different serviceaccount name."
            )));
        }
        let uid = field("uid");
        if !uid.is_empty() && uid != bound.uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            );
            return Err(ApiError::conflict("", kind, name, why));
        }
        Ok(Some(match kind {
            "Pod" => BoundObject::Pod { pod: bound, node: self.node(pod_spec("nodeName")) },
            "Node" => BoundObject::Node(bound),
            _ => BoundObject::Secret(bound),
        }))
    }

    /// The node that a pod runs on: at least its name, should the node itself be gone.
    fn node(&self, name: &str) -> Option<ObjectRef> {
        let uid = || self.nodes.get(name).map(|node| object::uid(&node.json()).to_owned()).unwrap_or_default();
        (!name.is_empty()).then(|| ObjectRef { name: name.to_owned(), uid: uid() })
    }
}

fn find(collection: &Arc<Collection>, plural: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let id = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let found = collection.get(&id).ok_or_else(|| ApiError::not_found("", plural, name))?;
    Ok(found.json())
}

/// As Go prints the type of a reference whose `apiVersion` may be missing.
fn describe(gvk: &Gvk) -> String {
    // The core group shows as the empty name that it is.
    format!("{}/{}, Kind={}", gvk.group, gvk.version, gvk.kind)
}

fn check_metadata(request: &Value, namespace: &str, name: &str) -> Result<(), ApiError> {
    let table = [
        ("name", object::name(request), name, "must match the service account name if specified"),
        ("namespace", object::namespace(request), namespace, "must match the service account namespace if specified"),
    ];
    for (field, said, wanted, detail) in table {
        if !said.is_empty() && said != wanted {
            let error = FieldError::invalid(&FieldPath::new("metadata").child(field), said, detail);
            return Err(ApiError::invalid(GROUP, KIND, name, &vec![error]));
        }
    }
    Ok(())
}

fn lifetime(request: &Value) -> Result<i64, ApiError> {
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    let detail = match seconds {
        ..MIN_SECONDS => "may not specify a duration less than 10 minutes",
        MIN_SECONDS..=MAX_SECONDS => return Ok(seconds),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = FieldError::invalid(&FieldPath::new("spec").child("expirationSeconds"), seconds, detail);
    Err(ApiError::invalid(GROUP, KIND, "", &vec![error]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::{Keys, TestCache, object as stored};

    async fn cache() -> TestCache {
        let mut pod = stored("Pod", "ns", "pod", "pod-uid");
        pod["spec"] = json!({"serviceAccountName": "sa", "nodeName": "n1"});
        let mut other_pod = stored("Pod", "ns", "other", "other-uid");
        other_pod["spec"] = json!({"serviceAccountName": "default"});
        TestCache::new([
            stored("ServiceAccount", "ns", "sa", "sa-uid"),
            stored("Secret", "ns", "secret", "secret-uid"),
            stored("Node", "", "n1", "node-uid"),
            pod,
            other_pod,
        ])
        .await
    }

    fn bound_to(kind: &str, name: &str) -> Value {
        json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}}})
    }

    #[tokio::test]
    async fn answers_carry_token_expiry_and_defaults() {
        let (keys, cache) = (Keys::new(), cache().await);
        let now = Timestamp::now();
        let answer = keys.tokens(&cache).request(json!({}), "ns", "sa", now).unwrap();
        assert_eq!(answer["kind"], KIND);
        assert_eq!(answer["metadata"]["name"], "sa");
        assert_eq!(answer["metadata"]["uid"], "sa-uid");
        assert_eq!(answer["spec"], json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null}));
        let expires = croft_meta::time::parse(answer["status"]["expirationTimestamp"].as_str().unwrap()).unwrap();
        assert_eq!(expires.as_second(), now.as_second() + 3600);

        let token = answer["status"]["token"].as_str().unwrap();
        let user = keys.authenticator(&cache).identify_token(token, &[]).unwrap().user;
        assert_eq!(user.name, "system:serviceaccount:ns:sa");
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("JTI="));
    }

    #[tokio::test]
    async fn pod_tokens_tell_the_pod_and_die_with_it() {
        let (keys, cache) = (Keys::new(), cache().await);
        let answer = keys.tokens(&cache).request(bound_to("Pod", "pod"), "ns", "sa", Timestamp::now()).unwrap();
        let token = answer["status"]["token"].as_str().unwrap();
        let authenticator = keys.authenticator(&cache);
        let extra = authenticator.identify_token(token, &[]).unwrap().user.extra;
        for (key, value) in [("pod-name", "pod"), ("pod-uid", "pod-uid"), ("node-name", "n1"), ("node-uid", "node-uid")]
        {
            assert_eq!(extra[&format!("authentication.kubernetes.io/{key}")], [value]);
        }
        cache.put(&stored("Pod", "ns", "pod", "another-uid")).await;
        let why = authenticator.identify_token(token, &[]).unwrap_err();
        assert_eq!(
            why,
            "[invalid bearer token, pod UID (another-uid) does not match service account pod ref claim (pod-uid)]"
        );
        cache.delete("core/pods/ns/pod").await;
        let why = authenticator.identify_token(token, &[]).unwrap_err();
        assert_eq!(why, "[invalid bearer token, service account token has been invalidated]");
    }

    #[tokio::test]
    async fn bad_requests_are_refused_as_upstream_does() {
        let (keys, cache) = (Keys::new(), cache().await);
        let spec = |spec: Value| json!({"spec": spec});
        let mut wrong_uid = bound_to("Secret", "secret");
        wrong_uid["spec"]["boundObjectRef"]["uid"] = json!("q");
        let table = [
            (
                spec(json!({"expirationSeconds": 10})),
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes",
            ),
            (
                spec(json!({"expirationSeconds": 10_000_000_000_i64})),
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 10000000000: may not specify a duration larger than 2^32 seconds",
            ),
            (
                spec(json!({"boundObjectRef": {"kind": "Foo", "apiVersion": "a/v1", "name": "x"}})),
                400,
                "cannot bind token to object of type a/v1, Kind=Foo",
            ),
            (bound_to("Pod", "gone"), 404, "pods \"gone\" not found"),
            (
                bound_to("Pod", "other"),
                400,
                "cannot bind token for serviceaccount \"sa\" to pod running with different serviceaccount name.",
            ),
            (
                wrong_uid,
                409,
                "Operation cannot be fulfilled on Secret \"secret\": the UID in the bound object reference (q) does not match the UID in record. The object might have been deleted and then recreated",
            ),
            (
                json!({"metadata": {"name": "zz"}}),
                422,
                "TokenRequest.authentication.k8s.io \"sa\" is invalid: metadata.name: Invalid value: \"zz\": must match the service account name if specified",
            ),
            (
                json!({"metadata": {"uid": "zz"}}),
                409,
                "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"sa\": the UID in the token request (zz) does not match the UID of the service account (sa-uid)",
            ),
        ];
        for (request, code, message) in table {
            let error = keys.tokens(&cache).request(request, "ns", "sa", Timestamp::now()).unwrap_err();
            assert_eq!((error.code(), error.message()), (code, message));
        }
        let error = keys.tokens(&cache).request(json!({}), "ns", "nope", Timestamp::now()).unwrap_err();
        assert_eq!((error.code(), error.message()), (404, "serviceaccounts \"nope\" not found"));
    }
}

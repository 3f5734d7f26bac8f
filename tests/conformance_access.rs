//! Behaviours of Kubernetes' conformance list about certificates and the tokens of service accounts.
//! `tests/conformance/behaviours.yaml` tells which test here stands for which behaviour.

use anyhow::{Context, Result, ensure};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use croft_e2e::conformance_definition::get;
use croft_e2e::storage::{deleted, made, patched};
use croft_testkit::{Authority, Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "example.com/conformance";

async fn start() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

fn names_version(list: &Value, version: &str) -> bool {
    list.as_array().into_iter().flatten().any(|one| one["version"] == version)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_certificates_take_every_verb() {
    let (_server, client) = start().await;
    are_discovered(&client).await;
    let request = json!({"metadata": {"generateName": "e2e-example-csr-"}, "spec": {
        "request": include_str!("conformance/request.b64").trim(), "signerName": SIGNER, "expirationSeconds": 3600,
        "usages": ["digital signature", "key encipherment", "server auth"]}});
    let selected = &format!("{REQUESTS}?fieldSelector=spec.signerName%3D{}", SIGNER.replace('/', "%2F"));
    let count = async || get(&client, selected).await["items"].as_array().map(Vec::len);
    made(&client, REQUESTS, &request).await;
    made(&client, REQUESTS, &request).await;
    let created = made(&client, REQUESTS, &request).await;
    let name = created["metadata"]["name"].as_str().expect("a name");
    let path = &format!("{REQUESTS}/{name}");
    let read = get(&client, path).await;
    assert_eq!(
        (&read["metadata"]["uid"], &read["spec"]["expirationSeconds"]),
        (&created["metadata"]["uid"], &json!(3600))
    );
    assert_eq!(count().await, Some(3));
    are_changed(&client, path, name).await;
    are_decided(&client, path, &created["metadata"]["uid"]).await;
    are_signed(&client, path, &created["metadata"]["uid"]).await;
    deleted(&client, path).await;
    assert_eq!(client.get(path).await.expect("an answer").status, 404);
    assert_eq!(count().await, Some(2));
    deleted(&client, selected).await;
    assert_eq!(count().await, Some(0));
}

async fn are_discovered(client: &Client) {
    let groups = get(client, "/apis").await;
    let group = groups["groups"].as_array().expect("groups").iter().find(|one| one["name"] == "certificates.k8s.io");
    assert!(names_version(&group.expect("the group")["versions"], "v1"));
    assert!(names_version(&get(client, "/apis/certificates.k8s.io").await["versions"], "v1"));
    let resources = get(client, "/apis/certificates.k8s.io/v1").await;
    for wanted in ["", "/approval", "/status"] {
        let wanted = format!("certificatesigningrequests{wanted}");
        assert!(resources["resources"].as_array().is_some_and(|list| list.iter().any(|one| one["name"] == wanted)));
    }
}

async fn are_changed(client: &Client, path: &str, name: &str) {
    let from = get(client, REQUESTS).await["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let watch = format!("{REQUESTS}?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={from}");
    let mut events = client.open(Call::new(Method::GET, &watch)).await.expect("a watch");
    let mut object = patched(client, path, &json!({"metadata": {"annotations": {"patched": "true"}}})).await;
    assert_eq!(object["metadata"]["annotations"]["patched"], "true");
    object["metadata"]["annotations"]["updated"] = json!("true");
    let updated = client.put(path, &object).await.expect("an answer").ok().expect("updated");
    assert_eq!(updated["metadata"]["annotations"]["updated"], "true");
    for annotation in ["patched", "updated"] {
        let event = events.event().await.expect("an event").expect("the watch goes on");
        assert_eq!(event["type"], "MODIFIED");
        assert_eq!(event["object"]["metadata"]["annotations"][annotation], "true", "{event}");
    }
}

/// Through `/approval`.
async fn are_decided(client: &Client, path: &str, uid: &Value) {
    let path = &format!("{path}/approval");
    let read = get(client, path).await;
    assert_eq!((&read["kind"], &read["metadata"]["uid"]), (&json!("CertificateSigningRequest"), uid));
    let condition = json!({"type": "ApprovalPatch", "status": "True", "reason": "e2e"});
    let patch =
        json!({"metadata": {"annotations": {"patchedapproval": "true"}}, "status": {"conditions": [condition]}});
    let mut object = patched(client, path, &patch).await;
    let conditions = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    assert_eq!(object["metadata"]["annotations"]["patchedapproval"], "true", "{object}");
    assert_eq!(conditions(&object).len(), 1);
    assert_eq!(conditions(&object)[0]["type"], "ApprovalPatch");
    let approved = json!({"type": "Approved", "status": "True", "reason": "E2E", "message": "Set from an e2e test"});
    object["status"]["conditions"].as_array_mut().expect("conditions").push(approved);
    let updated = client.put(path, &object).await.expect("an answer").ok().expect("updated");
    assert_eq!(conditions(&updated).len(), 2, "{updated}");
    assert_eq!(conditions(&updated)[1]["type"], "Approved");
}

/// Through `/status`.
async fn are_signed(client: &Client, path: &str, uid: &Value) {
    let path = &format!("{path}/status");
    let read = get(client, path).await;
    assert_eq!((&read["kind"], &read["metadata"]["uid"]), (&json!("CertificateSigningRequest"), uid));
    let authority = Authority::new("e2e.example.com").expect("an authority");
    let certificate = BASE64_STANDARD.encode(authority.cert_pem());
    let patch = json!({"metadata": {"annotations": {"patchedstatus": "true"}}, "status": {"certificate": certificate}});
    let mut object = patched(client, path, &patch).await;
    assert_eq!(object["status"]["certificate"], certificate);
    assert_eq!(object["metadata"]["annotations"]["patchedstatus"], "true", "{object}");
    let told = json!({"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set from an e2e test"});
    object["status"]["conditions"].as_array_mut().expect("conditions").push(told);
    let updated = client.put(path, &object).await.expect("an answer").ok().expect("updated");
    let conditions = updated["status"]["conditions"].as_array().expect("conditions");
    assert_eq!(conditions.len(), 3);
    assert_eq!(conditions[2]["type"], "StatusUpdate");
}

/// The header and the claims of a token, and what is signed.
fn parts(token: &str) -> Result<(Value, Value, &str, Vec<u8>)> {
    let (signed, signature) = token.rsplit_once('.').context("no signature")?;
    let (header, claims) = signed.split_once('.').context("no claims")?;
    let read = |text: &str| anyhow::Ok(serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text)?)?);
    Ok((read(header)?, read(claims)?, signed, BASE64_URL_SAFE_NO_PAD.decode(signature)?))
}

/// As somebody does who knows nothing but the token and the documents that its issuer publishes.
fn verify(token: &str, keys: &Value) -> Result<()> {
    let (header, _, signed, signature) = parts(token)?;
    ensure!(header["alg"] == "ES256", "{header}");
    let mut keys = keys["keys"].as_array().into_iter().flatten();
    let key = keys.find(|key| key["kid"] == header["kid"]).context("its key is not published")?;
    ensure!((&key["kty"], &key["crv"], &key["use"]) == (&json!("EC"), &json!("P-256"), &json!("sig")), "{key}");
    let mut point = vec![4];
    for coordinate in ["x", "y"] {
        point.extend(BASE64_URL_SAFE_NO_PAD.decode(key[coordinate].as_str().unwrap_or_default())?);
    }
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    key.verify(signed.as_bytes(), &signature).map_err(|_| anyhow::anyhow!("the signature is wrong"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_verified_with_what_their_issuer_publishes() {
    let (server, client) = start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    eventually("there is an account", async || client.get(&format!("{accounts}/default")).await?.ok()).await;
    let binding = json!({"metadata": {"name": "discovery"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:service-account-issuer-discovery"}});
    made(&client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let audience = "oidc-discovery-test";
    let asked = json!({"spec": {"audiences": [audience], "expirationSeconds": 600}});
    let token = made(&client, &format!("{accounts}/default/token"), &asked).await;
    let token = token["status"]["token"].as_str().expect("a token");
    // What a pod says who it is with is another one.
    let own = made(&client, &format!("{accounts}/default/token"), &json!({"spec": {}})).await;
    let account = server.bearer(own["status"]["token"].as_str().expect("a token")).expect("a client");

    let (_, claims, _, _) = parts(token).expect("a token");
    assert_eq!(claims["aud"], json!([audience]));
    assert_eq!(claims["sub"], "system:serviceaccount:default:default");
    let now = u64::try_from(jiff::Timestamp::now().as_second()).expect("a time");
    assert!(claims["exp"].as_u64().is_some_and(|end| end > now && end <= now + 600), "{claims}");

    let found = account.get("/.well-known/openid-configuration").await.expect("an answer");
    assert_eq!(found.header("content-type"), Some("application/json"));
    let found = found.ok().expect("the document");
    assert_eq!(found["issuer"], claims["iss"]);
    assert_eq!(found["id_token_signing_alg_values_supported"], json!(["ES256"]));
    let uri: http::Uri = found["jwks_uri"].as_str().expect("an address").parse().expect("an address");
    assert_eq!(uri.authority().map(ToString::to_string), server.address().ok().map(|address| address.to_string()));
    let keys = account.get(uri.path()).await.expect("an answer");
    assert_eq!(keys.header("content-type"), Some("application/jwk-set+json"));
    let keys = keys.ok().expect("the keys");
    verify(token, &keys).expect("the token is good");
    let (head, tail) = token.split_at(token.len() - 20);
    let forged = format!("{head}{}", if tail.starts_with('A') { "B" } else { "A" }) + &tail[1..];
    assert!(verify(&forged, &keys).is_err());
    // Not for everybody: who may not know about tokens does not.
    let nobody = server.anonymous().expect("a client");
    assert_eq!(nobody.get("/openid/v1/jwks").await.expect("an answer").status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_certificates_come_back_as_they_were() {
    let (_server, client) = start().await;
    made(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "trusting"}})).await;
    let path = "/api/v1/namespaces/trusting/configmaps/kube-root-ca.crt";
    let data = eventually("they are there", async || client.get(path).await?.ok()).await["data"].clone();
    assert!(data["ca.crt"].as_str().is_some_and(|text| text.starts_with("-----BEGIN CERTIFICATE-----")), "{data}");
    let are_back = async || {
        eventually("they are back", async || {
            let map = client.get(path).await?.ok()?;
            ensure!(map["data"] == data, "{map}");
            anyhow::Ok(())
        })
        .await;
    };
    deleted(&client, path).await;
    are_back().await;
    patched(&client, path, &json!({"data": {"ca.crt": "", "more": "x"}})).await;
    are_back().await;
}

//! Credentials that are taken back: at once for requests, within seconds for what is open.

use croft_e2e::logins;
use croft_e2e::machines::{IMAGES, is_true, node};
use croft_e2e::storage::{image, imported, made};
use croft_e2e::web::Web;
use croft_testkit::{Call, Client, Croft, Endpoint, StoreKind, Stream, eventually, patience};
use http::Method;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn start() -> Croft {
    Croft::start(StoreKind::Embedded).await.expect("the server starts")
}

/// What the command printed, which is mostly one word.
async fn croft(server: &Croft, args: &[&str]) -> String {
    logins::croft(server, args).await.trim().to_owned()
}

/// A watch that has begun.
async fn watch(client: &Client) -> Stream {
    let mut stream = client.open(Call::new(Method::GET, &format!("{MAPS}?watch=true"))).await.expect("a stream");
    assert_eq!(stream.status, 200);
    assert_eq!(stream.event().await.expect("an event").expect("one")["type"], "ADDED");
    stream
}

async fn code(client: &Client) -> u16 {
    client.get(MAPS).await.expect("an answer").status
}

/// Reads what is left; the server ends it cleanly.
async fn ends(mut stream: Stream) {
    while stream.event().await.expect("the stream ends by itself").is_some() {}
}

async fn me(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let told = client.post(REVIEW, &review).await.expect("an answer").ok().expect("a review");
    told["status"]["userInfo"].clone()
}

fn credential(user: &Value) -> String {
    user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_users_end_with_what_is_open() {
    let server = start().await;
    let admin = server.client().expect("a client");
    admin.post(MAPS, &json!({"metadata": {"name": "one"}})).await.expect("an answer").ok().expect("made");
    let create = ["token", "create", "--user", "jane", "--group", "system:masters"];
    let (first, second) = (croft(&server, &create).await, croft(&server, &create).await);
    let (one, two) = (server.bearer(&first).expect("a client"), server.bearer(&second).expect("a client"));
    let user = me(&one).await;
    assert_eq!(user["username"], "jane");
    let id = credential(&user).trim_start_matches("token-").to_owned();
    assert!(first.starts_with(&format!("croft-{id}:")), "{id}");
    let list = croft(&server, &["token", "list", "--user", "jane"]).await;
    assert!(list.contains(&id) && list.lines().count() == 3, "{list}");

    let (open, others) = (watch(&one).await, watch(&two).await);
    croft(&server, &["token", "revoke", &id]).await;
    assert_eq!((code(&one).await, code(&two).await), (401, 200));
    ends(open).await;
    croft(&server, &["token", "revoke", "--user", "jane"]).await;
    assert_eq!(code(&two).await, 401);
    ends(others).await;
    assert_eq!(croft(&server, &["token", "list", "--user", "jane"]).await.lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_service_account_end_one_by_one_or_all() {
    let mut server = start().await;
    let kubectl = server.kubectl().expect("kubectl");
    kubectl.ok(&["create", "configmap", "one"]).await;
    kubectl.ok(&["create", "serviceaccount", "builder"]).await;
    let binding = ["create", "clusterrolebinding", "b", "--clusterrole=view", "--serviceaccount=default:builder"];
    kubectl.ok(&binding).await;
    let token = async || croft(&server, &["token", "create", "--service-account", "default/builder"]).await;
    let (first, second) = (token().await, token().await);
    let (one, two) = (server.bearer(&first).expect("a client"), server.bearer(&second).expect("a client"));
    let id = credential(&me(&one).await);
    assert!(id.starts_with("JTI="), "{id}");
    let (open, others) = (watch(&one).await, watch(&two).await);
    croft(&server, &["token", "revoke", &id]).await;
    assert_eq!((code(&one).await, code(&two).await), (401, 200));
    ends(open).await;

    croft(&server, &["token", "revoke", "--service-account", "default/builder"]).await;
    assert_eq!(code(&two).await, 401);
    ends(others).await;
    let third = token().await;
    let three = server.bearer(&third).expect("a client");
    assert_eq!(code(&three).await, 200, "new tokens are good");

    // Whoever may write the account does not take it back.
    kubectl.ok(&["create", "rolebinding", "e", "--clusterrole=edit", "--user=jane"]).await;
    let jane = server.bearer(&croft(&server, &["token", "create", "--user", "jane"]).await).expect("a client");
    let account = "/api/v1/namespaces/default/serviceaccounts/builder";
    let bare = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder"}});
    jane.put(account, &bare).await.expect("an answer").ok().expect("replaced");
    let gone = json!({"metadata": {"annotations": null}});
    jane.patch(account, "merge-patch", &gone).await.expect("an answer").ok().expect("patched");
    assert_eq!(code(&two).await, 401);

    // It is kept, and not everybody may make it undone.
    server.restart().await.expect("the server starts again");
    let clients = [&first, &second, &third].map(|token| server.bearer(token).expect("a client"));
    assert_eq!((code(&clients[0]).await, code(&clients[1]).await, code(&clients[2]).await), (401, 401, 200));
    let kubectl = server.kubectl().expect("kubectl");
    kubectl.ok(&["create", "clusterrolebinding", "c", "--clusterrole=cluster-admin", "--user=bob"]).await;
    let bob = server.bearer(&croft(&server, &["token", "create", "--user", "bob"]).await).expect("a client");
    let list = "/api/v1/namespaces/kube-system/secrets/revoked-credentials";
    let refused = bob.delete(list).await.expect("an answer");
    assert_eq!(refused.status, 403, "{}", refused.text());

    // Nor put something else in the place of what the server keeps.
    let secrets = |namespace: &str| format!("/api/v1/namespaces/{namespace}/secrets");
    let named =
        |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": name}});
    for name in ["login-lockouts", "user-eve", "token-abcde"] {
        let refused = bob.post(&secrets("kube-system"), &named(name)).await.expect("an answer");
        assert_eq!(refused.status, 403, "{name}: {}", refused.text());
    }
    for (namespace, name) in [("default", "login-lockouts"), ("kube-system", "another")] {
        assert_eq!(bob.post(&secrets(namespace), &named(name)).await.expect("an answer").status, 201, "{name}");
    }
    let admin = server.client().expect("a client");
    let gone = json!({"metadata": {"annotations": null}});
    admin.patch(account, "merge-patch", &gone).await.expect("an answer").ok().expect("patched");
    assert_eq!(code(&clients[1]).await, 200, "an administrator takes it back");
    // Should it be there all the same, nothing is said to be revoked.
    assert_eq!(admin.delete(list).await.expect("an answer").status, 200);
    assert_eq!(
        admin.post(&secrets("kube-system"), &named("revoked-credentials")).await.expect("an answer").status,
        201
    );
    let mut command = tokio::process::Command::new(croft_testkit::binary().expect("the program"));
    let out = command.args(["token", "revoke", &third]).env("CROFT_DATA_DIR", server.data_dir()).output().await;
    let out = out.expect("croft runs");
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && told.contains("of type \"Opaque\""), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_refused_and_the_admin_gets_another() {
    let server = start().await;
    let old = server.client().expect("a client");
    old.post(MAPS, &json!({"metadata": {"name": "one"}})).await.expect("an answer").ok().expect("made");
    let id = credential(&me(&old).await);
    let open = watch(&old).await;
    // A credential that goes on does not keep open what was opened with this one.
    let jane = croft(&server, &["token", "create", "--user", "jane", "--group", "system:masters"]).await;
    let both = Call::new(Method::GET, &format!("{MAPS}?watch=true")).header("authorization", &format!("Bearer {jane}"));
    let mut both = old.open(both).await.expect("a stream");
    assert_eq!(both.event().await.expect("an event").expect("one")["type"], "ADDED");
    let socket = server.websocket_offering("/v1/harvester/subscribe", &[]).await.expect("an answer");
    let mut socket = socket.expect("a subscription");
    let kubeconfig = server.kubeconfig.to_str().expect("a path").to_owned();
    let told = croft(&server, &["cert", "revoke", &kubeconfig]).await;
    assert_eq!(told, format!("revoked {id}"));
    assert_eq!(code(&old).await, 401);
    ends(open).await;
    ends(both).await;
    let closed = async { while socket.receive().await.expect("the subscription is closed").is_some() {} };
    tokio::time::timeout(patience(), closed).await.expect("the subscription ends as well");
    let new = eventually("the server makes another", async || {
        let new = Endpoint::from_kubeconfig(&server.kubeconfig).expect("a kubeconfig");
        if new.admin.cert_pem == server.admin.cert_pem { Err("it is still the old one") } else { Ok(new) }
    });
    let new = new.await;
    assert_eq!(code(&new.client().expect("a client")).await, 200);
    let list = croft(&server, &["cert", "list"]).await;
    assert!(list.contains(&id), "{list}");
}

/// Half an image is no image, and must not look like one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_that_is_cut_off_fails() {
    let (server, admin) = node().await;
    made(&admin, MAPS, &json!({"metadata": {"name": "one"}})).await;
    let web = Web::start().await.expect("a server");
    // Nothing that could be packed: more than a client and the server hold on to while nobody reads.
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    });
    let url = web.put("noise.raw", noise.take(64 << 20).collect::<Vec<u8>>()).await;
    made(&admin, IMAGES, &image("noise", &json!({"sourceType": "download", "url": url}))).await;
    assert!(is_true(&imported(&admin, "noise").await, "Imported"));

    let token = croft(&server, &["token", "create", "--user", "jane", "--group", "system:masters"]).await;
    let jane = server.bearer(&token).expect("a client");
    let path = "/v1/harvester/harvesterhci.io.virtualmachineimages/default/noise/download";
    let download = jane.open(Call::new(Method::GET, path)).await.expect("a download");
    assert_eq!(download.status, 200);
    let open = watch(&jane).await;
    croft(&server, &["token", "revoke", "--user", "jane"]).await;
    // When the watch has ended, so has the download.
    ends(open).await;
    let read = download.discard().await;
    assert!(read.is_err(), "{read:?} bytes look like all of it");
}

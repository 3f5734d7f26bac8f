//! Rancher's and Steve's HTTP as Harvester's clients speak it: logging in, collections, changes over a WebSocket, actions.

use croft_e2e::machines::{empty, status_becomes};
use croft_testkit::{Answer, Call, Client, Croft, StoreKind, WebSocket, eventually, patience};
use http::Method;
use serde_json::{Value, json};

const LOGIN: &str = "/v3-public/localProviders/local?action=login";
const PASSWORD: &str = "a first password";
const MAPS: &str = "/v1/harvester/configmaps";
const VMS: &str = "/v1/harvester/kubevirt.io.virtualmachines";

/// A server whose admin has [`PASSWORD`].
async fn start() -> Croft {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    std::fs::write(&file, PASSWORD).expect("the password is written");
    let option = format!("--admin-password-file={}", file.display());
    Croft::start_with(StoreKind::Embedded, &[&option]).await.expect("the server starts")
}

async fn log_in(client: &Client, name: &str, password: &str, extra: &Value) -> Answer {
    let mut body = json!({"username": name, "password": password, "responseType": "token"});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    client.post(LOGIN, &body).await.expect("an answer")
}

async fn token(server: &Croft) -> String {
    let answer = log_in(&server.anonymous().expect("a client"), "admin", PASSWORD, &json!({})).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["token"].as_str().expect("a token").to_owned()
}

/// A failure in Steve's form.
fn refused(what: &str, answer: &Answer, code: u16, words: &str) {
    let body = answer.json();
    assert_eq!(answer.status, code, "{what}: {body}");
    assert_eq!((&body["type"], &body["status"]), (&json!("error"), &json!(code)), "{what}: {body}");
    assert!(body["message"].as_str().unwrap_or_default().contains(words), "{what}: {body}");
}

fn cookie(answer: &Answer, name: &str) -> String {
    let cookies = answer.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let found = cookies.into_iter().find_map(|value| value.strip_prefix(&format!("{name}=")).map(str::to_owned));
    let found = found.unwrap_or_else(|| panic!("no cookie {name}: {:?}", answer.headers));
    found.split(';').next().unwrap_or_default().to_owned()
}

fn map(name: &str, value: &str) -> Value {
    json!({"type": "configmap", "metadata": {"name": name, "namespace": "default", "labels": {"mine": "yes"}},
        "data": {"a": value}})
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["data"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_from_a_login_opens_everything_until_it_ends() {
    let server = start().await;
    let anonymous = server.anonymous().expect("a client");
    assert_eq!(anonymous.get("/ping").await.expect("an answer").text(), "pong");
    let answer = log_in(&anonymous, "admin", PASSWORD, &json!({"ttl": 600_000, "description": "a test"})).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let made = answer.json();
    let text = made["token"].as_str().expect("a token").to_owned();
    assert!(text.starts_with("token-") && text.starts_with(&format!("{}:", made["id"].as_str().unwrap())), "{made}");
    assert_eq!(
        (&made["ttl"], &made["description"], &made["type"]),
        (&json!(600_000), &json!("a test"), &json!("token"))
    );

    // As a bearer token, as user and password, and as a cookie; here, in the Kubernetes API, and through Rancher's path.
    let (id, secret) = text.split_once(':').expect("two parts");
    let basic =
        format!("Basic {}", base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("{id}:{secret}")));
    let ways = [
        ("authorization", format!("Bearer {text}")),
        ("authorization", basic),
        ("cookie", format!("x=1; R_SESS={text}")),
    ];
    for (header, value) in &ways {
        for path in ["/api/v1/namespaces", "/k8s/clusters/local/api/v1/namespaces", "/v1/harvester/namespaces"] {
            let answer = anonymous.send(Call::new(Method::GET, path).header(header, value)).await.expect("an answer");
            assert_eq!(answer.status, 200, "{header} {path}: {}", answer.text());
        }
    }
    let client = server.bearer(&text).expect("a client");
    let me = client.get("/v3/users?me=true").await.expect("an answer").ok().expect("me");
    assert_eq!((&me["data"][0]["username"], &me["data"][0]["mustChangePassword"]), (&json!("admin"), &json!(false)));
    let tokens = client.get("/v3/tokens").await.expect("an answer").ok().expect("tokens");
    assert_eq!((&tokens["data"][0]["current"], &tokens["data"][0]["id"]), (&json!(true), &made["id"]), "{tokens}");
    assert!(!tokens.to_string().contains(secret), "the secret is shown once");

    let key = client.post("/v3/tokens", &json!({"ttl": 60_000, "description": "key"})).await.expect("an answer");
    assert_eq!(key.status, 201, "{}", key.text());
    let key = server.bearer(key.json()["token"].as_str().expect("a token")).expect("a client");
    assert_eq!(client.post("/v3/tokens?action=logout", &json!({})).await.expect("an answer").status, 200);
    refused("logged out", &client.get("/v3/tokens").await.expect("an answer"), 401, "");
    assert_eq!(client.get("/api/v1/namespaces").await.expect("an answer").status, 401);

    let tokens = key.get("/v1/management.cattle.io.tokens").await.expect("an answer").ok().expect("tokens");
    let id = tokens["data"][0]["id"].as_str().expect("an id");
    assert_eq!(
        (tokens["count"].as_u64(), key.delete(&format!("/v3/tokens/{id}")).await.expect("an answer").status),
        (Some(1), 200)
    );
    assert_eq!(key.get("/api/v1/namespaces").await.expect("an answer").status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_logins_are_refused_and_slowed_down() {
    let server = start().await;
    let client = server.anonymous().expect("a client");
    for (body, code, words) in [
        (json!({}), 422, "required"),
        (json!({"username": "admin", "password": ""}), 422, "required"),
        (json!({"username": "admin", "password": 3}), 422, "cannot be read"),
        (json!({"username": "admin", "password": PASSWORD, "ttl": -1}), 422, "ttl"),
        (json!({"username": "admin", "password": PASSWORD, "responseType": "saml"}), 422, "responseType"),
        (json!({"username": "nobody", "password": "x"}), 401, "authentication failed"),
        (json!({"username": "admin", "password": "x".repeat(5000)}), 422, "too long"),
    ] {
        refused(&body.to_string(), &client.post(LOGIN, &body).await.expect("an answer"), code, words);
    }
    refused("a GET of the past", &client.get("/v3-public/nothing").await.expect("an answer"), 404, "");
    let mut last = None;
    for guess in 0..12 {
        let answer = log_in(&client, "admin", &format!("guess {guess}"), &json!({})).await;
        let is_throttled = answer.status == 429;
        last = Some(answer);
        if is_throttled {
            break;
        }
    }
    let last = last.expect("an answer");
    refused("too many", &last, 429, "too many failed logins");
    let wait: u64 = last.header("retry-after").and_then(|text| text.parse().ok()).expect("Retry-After");
    assert!((1..=60).contains(&wait), "{wait}");

    let short = log_in(&client, "admin", PASSWORD, &json!({"ttl": 1})).await;
    // Even the right password has to wait, for as long as it was told.
    let short = if short.status == 429 {
        eventually("the patience is back", async || {
            let answer = log_in(&client, "admin", PASSWORD, &json!({"ttl": 1})).await;
            if answer.status == 201 { Ok(answer) } else { Err(answer.text()) }
        })
        .await
    } else {
        short
    };
    let expired = server.bearer(short.json()["token"].as_str().expect("a token")).expect("a client");
    refused("expired", &expired.get("/v3/users?me=true").await.expect("an answer"), 401, "");
    refused("nobody", &client.get(MAPS).await.expect("an answer"), 401, "must authenticate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browsers_session_needs_its_proof_to_change_anything() {
    let server = start().await;
    let client = server.anonymous().expect("a client");
    let answer = log_in(&client, "admin", PASSWORD, &json!({"responseType": "cookie"})).await;
    assert_eq!((answer.status, &answer.json()["token"]), (201, &Value::Null));
    let (session, proof) = (cookie(&answer, "R_SESS"), cookie(&answer, "CSRF"));
    let cookies = format!("R_SESS={session}; CSRF={proof}");
    let post = |header: Option<&str>| {
        let call = Call::new(Method::POST, MAPS).json(&map("from-a-browser", "1")).header("cookie", &cookies);
        if let Some(proof) = header { call.header("x-api-csrf", proof) } else { call }
    };
    refused("no proof", &client.send(post(None)).await.expect("an answer"), 422, "X-API-CSRF");
    refused("another's proof", &client.send(post(Some("0"))).await.expect("an answer"), 422, "match");
    let made = client.send(post(Some(&proof))).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());

    // The same holds in the Kubernetes API, and for WebSockets of other sites.
    let path = "/api/v1/namespaces/default/configmaps/from-a-browser";
    let delete = Call::new(Method::DELETE, path).header("cookie", &cookies);
    assert_eq!(client.send(delete.clone()).await.expect("an answer").status, 422);
    assert_eq!(client.send(delete.header("x-api-csrf", &proof)).await.expect("an answer").status, 200);
    let foreign = [("cookie", cookies.as_str()), ("origin", "https://evil.example")];
    let refusal = server.websocket_as(None, "/v1/subscribe", &[], &foreign).await.expect("an answer");
    assert_eq!(refusal.expect_err("refused").code, 422);

    // Nor does a password that the browser remembers help a page of another site, nor a form of it.
    let pair = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("admin:{PASSWORD}"));
    let basic = format!("Basic {pair}");
    let own = server.url.clone();
    let maps = "/api/v1/namespaces/default/configmaps";
    for (path, name, header, value, expected) in [
        (MAPS, "a", "origin", "https://evil.example", 403),
        (MAPS, "a", "sec-fetch-site", "cross-site", 403),
        (maps, "a", "origin", "https://evil.example", 403),
        (LOGIN, "", "origin", "https://evil.example", 403),
        ("/croft/v1/encryption/rotate", "", "origin", "https://evil.example", 403),
        (MAPS, "b", "origin", &own, 201),
        (MAPS, "c", "sec-fetch-site", "same-origin", 201),
        (maps, "d", "x-requested-by", "a program", 201),
    ] {
        let body = if path == maps { json!({"metadata": {"name": name}}) } else { map(name, "1") };
        let call = Call::new(Method::POST, path).json(&body).header("authorization", &basic).header(header, value);
        let answer = client.send(call).await.expect("an answer");
        assert_eq!(answer.status, expected, "{path} {header}: {value}: {}", answer.text());
    }
    let form = Call::new(Method::POST, MAPS).body("text/plain", map("e", "1").to_string());
    let answer = client.send(form.header("authorization", &basic)).await.expect("an answer");
    refused("a form", &answer, 415, "application/json");
    let foreign = [("authorization", basic.as_str()), ("origin", "https://evil.example")];
    let refusal = server.websocket_as(None, "/v1/subscribe", &[], &foreign).await.expect("an answer");
    assert_eq!(refusal.expect_err("refused").code, 403);

    let out =
        Call::new(Method::POST, "/v3/tokens?action=logout").header("cookie", &cookies).header("x-api-csrf", &proof);
    let out = client.send(out).await.expect("an answer");
    assert_eq!((out.status, cookie(&out, "R_SESS")), (200, String::new()));
    // Whoever holds a cookie of the past can still log in.
    let again = Call::new(Method::POST, LOGIN).json(&json!({"username": "admin", "password": PASSWORD}));
    assert_eq!(client.send(again.header("cookie", &cookies)).await.expect("an answer").status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraforms_bootstrap_works() {
    let server = start().await;
    let client = server.bearer(&token(&server).await).expect("a client");
    let other = server.bearer(&token(&server).await).expect("a client");
    let change = |old: &str, new: &str| json!({"currentPassword": old, "newPassword": new});
    let path = "/v3/users?action=changepassword";
    for (body, words) in [
        (json!({}), "required"),
        (change(PASSWORD, "short"), "at least 12"),
        (change("wrong password", "a second password"), "invalid current password"),
        (change(PASSWORD, PASSWORD), "differ"),
    ] {
        refused(words, &client.post(path, &body).await.expect("an answer"), 422, words);
    }
    let changed = client.post(path, &change(PASSWORD, "a second password")).await.expect("an answer");
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(other.get("/v3/tokens").await.expect("an answer").status, 401, "other sessions end");
    let anonymous = server.anonymous().expect("a client");
    assert_eq!(log_in(&anonymous, "admin", PASSWORD, &json!({})).await.status, 401);
    assert_eq!(log_in(&anonymous, "admin", "a second password", &json!({})).await.status, 201);

    let path = "/v1/management.cattle.io.clusters/local?action=generateKubeconfig";
    let config = client.post(path, &json!({})).await.expect("an answer").ok().expect("a kubeconfig");
    let config: Value = serde_saphyr::from_str(config["config"].as_str().expect("yaml")).expect("yaml");
    let address = config["clusters"][0]["cluster"]["server"].as_str().expect("a server");
    assert_eq!(address, format!("{}/k8s/clusters/local", server.url));
    let holder = server.bearer(config["users"][0]["user"]["token"].as_str().expect("a token")).expect("a client");
    assert_eq!(holder.get("/k8s/clusters/local/api/v1/nodes").await.expect("an answer").status, 200);

    // What the interface does after the first login.
    let first = anonymous.get("/v3/settings/first-login").await.expect("an answer").ok().expect("a setting");
    assert_eq!(first["value"], "true");
    refused(
        "closed",
        &anonymous.put("/v3/settings/first-login", &json!({"value": "x"})).await.expect("an answer"),
        401,
        "",
    );
    let set = client.put("/v3/settings/first-login", &json!({"value": "false"})).await.expect("an answer");
    assert_eq!((set.status, &set.json()["value"]), (200, &json!("false")), "{}", set.text());
    refused(
        "fixed",
        &client.put("/v3/settings/cacerts", &json!({"value": ""})).await.expect("an answer"),
        403,
        "fixed",
    );
    let ca = client.get("/v3/settings/cacerts").await.expect("an answer").ok().expect("a setting");
    assert_eq!(ca["value"].as_str(), Some(server.ca_pem.as_str()));
    let admin = server.client().expect("a client");
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    assert!(admin.get(path).await.expect("an answer").status == 200, "certificates go on working");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_a_collection() {
    let server = start().await;
    let client = server.client().expect("a client");
    let made = client.post(MAPS, &map("one", "1")).await.expect("an answer");
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let this = format!("{}{MAPS}/default/one", server.url);
    assert_eq!(
        (&made["id"], &made["type"], &made["links"]["self"]),
        (&json!("default/one"), &json!("configmap"), &json!(this))
    );
    assert_eq!(
        made["metadata"]["state"],
        json!({"name": "active", "message": "", "error": false, "transitioning": false})
    );
    assert_eq!(made["links"]["view"], format!("{}/api/v1/namespaces/default/configmaps/one", server.url));
    let one = format!("{MAPS}/default/one");
    refused("again", &client.post(MAPS, &map("one", "1")).await.expect("an answer"), 409, "already exists");
    refused(
        "nowhere",
        &client.post(MAPS, &json!({"metadata": {"name": "x"}})).await.expect("an answer"),
        422,
        "namespace",
    );
    refused("no kind", &client.get("/v1/harvester/unheard.of").await.expect("an answer"), 404, "no schema");
    refused("no object", &client.get(&format!("{MAPS}/default/none")).await.expect("an answer"), 404, "not found");

    // What was read can be sent back as it is.
    let mut changed = client.get(&one).await.expect("an answer").ok().expect("the map");
    changed["data"]["a"] = json!("2");
    let put = client.put(&one, &changed).await.expect("an answer");
    assert_eq!((put.status, &put.json()["data"]["a"]), (200, &json!("2")), "{}", put.text());
    refused("outdated", &client.put(&one, &changed).await.expect("an answer"), 409, "modified");
    changed["metadata"]["resourceVersion"] = json!("");
    refused("unread", &client.put(&one, &changed).await.expect("an answer"), 422, "resourceVersion");
    let patched = client.patch(&one, "merge-patch", &json!({"data": {"b": "3"}})).await.expect("an answer");
    assert_eq!((patched.status, &patched.json()["data"]), (200, &json!({"a": "2", "b": "3"})));
    let stored = client.get("/api/v1/namespaces/default/configmaps/one").await.expect("an answer").json();
    assert!(stored.get("links").is_none() && stored["metadata"].get("state").is_none(), "{stored}");

    let secret = json!({"type": "secret", "_type": "Opaque", "metadata": {"name": "s", "namespace": "default"}});
    let secret = client.post("/v1/secrets", &secret).await.expect("an answer").json();
    assert_eq!((&secret["type"], &secret["_type"]), (&json!("secret"), &json!("Opaque")), "{secret}");

    assert!(matches!(client.delete(&one).await.expect("an answer").status, 200 | 204));
    refused("gone", &client.get(&one).await.expect("an answer"), 404, "not found");
    let schemas = client.get("/v1/harvester/schemas").await.expect("an answer").ok().expect("schemas");
    let all = schemas["data"].as_array().expect("schemas");
    let vm = all.iter().find(|schema| schema["id"] == "kubevirt.io.virtualmachine").expect("the schema of machines");
    assert_eq!(vm["links"]["collection"], format!("{}{VMS}", server.url));
    assert_eq!(vm["collectionMethods"], json!(["GET", "POST"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_chosen_sorted_and_cut() {
    let server = start().await;
    let client = server.client().expect("a client");
    for (namespace, count) in [("one", 3), ("two", 2)] {
        client
            .post("/v1/namespaces", &json!({"metadata": {"name": namespace}}))
            .await
            .expect("an answer")
            .ok()
            .expect("made");
        for n in 0..count {
            let body = json!({"metadata": {"name": format!("m{n}"), "namespace": namespace, "labels": {"set": "x"}},
                "data": {"n": (10 - n).to_string()}});
            client.post(MAPS, &body).await.expect("an answer").ok().expect("made");
        }
    }
    // Every namespace has a map of the server's own.
    let get = async |query: &str| {
        let sign = if query.contains('?') { '&' } else { '?' };
        let path = format!("{MAPS}{query}{sign}labelSelector=set%3Dx");
        client.get(&path).await.expect("an answer").ok().expect("a list")
    };
    assert_eq!(names(&get("/one").await), ["m0", "m1", "m2"]);
    let all = get("").await;
    assert_eq!(
        (all["count"].as_u64(), all["type"].as_str(), all["resourceType"].as_str()),
        (Some(5), Some("collection"), Some("configmap"))
    );
    assert_eq!(names(&get("/one?sort=data.n").await), ["m2", "m1", "m0"]);
    assert_eq!(names(&get("/one?sort=-data.n").await), ["m0", "m1", "m2"]);
    assert_eq!(
        names(&get("?filter=metadata.name%3Dm1&filter=metadata.labels%5Bset%5D%3Dx&sort=id").await),
        ["m1", "m1"]
    );
    assert_eq!(names(&get("/one?filter=data.n%3E8&sort=metadata.name").await), ["m0", "m1"]);
    assert_eq!(names(&get("?projectsornamespaces=one,two&filter=metadata.name~m1").await).len(), 2);
    let page = get("/one?page=2&pagesize=2").await;
    assert_eq!((names(&page), page["pages"].as_u64(), page["count"].as_u64()), (vec!["m2"], Some(2), Some(3)));
    let first = get("/one?limit=2").await;
    let next = first["continue"].as_str().expect("more");
    assert_eq!((names(&first).len(), names(&get(&format!("/one?limit=2&continue={next}")).await)), (2, vec!["m2"]));
    let lean = get("/one?exclude=metadata.managedFields").await;
    assert!(lean["data"][0]["metadata"].get("managedFields").is_none(), "{lean}");
    assert_eq!(lean["data"][0]["metadata"]["fields"][0], "m0");
    for bad in ["?filter=x", "?page=a&pagesize=1", "?limit=x", "?labelSelector=%2C%2C", "?sort=..a"] {
        let answer = client.get(&format!("{MAPS}{bad}")).await.expect("an answer");
        assert!(matches!(answer.status, 400 | 422), "{bad}: {}", answer.text());
    }

    // A long list leaves out the columns and is otherwise the same.
    let plain = client.get("/api/v1/configmaps?labelSelector=set%3Dx").await.expect("an answer").json();
    let expected: Vec<&Value> = plain["items"].as_array().expect("items").iter().map(|item| &item["data"]).collect();
    let data: Vec<&Value> = all["data"].as_array().expect("data").iter().map(|item| &item["data"]).collect();
    assert_eq!(data, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_sees_and_does_what_roles_allow() {
    let server = start().await;
    let admin = server.client().expect("a client");
    let encoded = |text: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
    // The hash of the admin is as good for a user of the same password.
    let stored = admin.get("/api/v1/namespaces/kube-system/secrets/user-admin").await.expect("an answer").json();
    let user = json!({"type": "croft.io/user", "metadata": {"name": "user-jane"}, "data": {
        "username": encoded("jane"), "password-hash": stored["data"]["password-hash"], "groups": ""}});
    admin.post("/api/v1/namespaces/kube-system/secrets", &user).await.expect("an answer").ok().expect("a user");
    for namespace in ["hers", "others"] {
        admin
            .post("/v1/namespaces", &json!({"metadata": {"name": namespace}}))
            .await
            .expect("an answer")
            .ok()
            .expect("made");
        let body = json!({"metadata": {"name": "a", "namespace": namespace}});
        admin.post(MAPS, &body).await.expect("an answer").ok().expect("made");
    }
    let login = log_in(&server.anonymous().expect("a client"), "jane", PASSWORD, &json!({})).await;
    let text = login.json()["token"].as_str().expect("a token").to_owned();
    let jane = server.bearer(&text).expect("a client");
    refused("nothing yet", &jane.get(&format!("{MAPS}/hers")).await.expect("an answer"), 403, "forbidden");
    let binding = json!({"metadata": {"name": "jane"}, "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/hers/rolebindings";
    admin.post(bindings, &binding).await.expect("an answer").ok().expect("a binding");

    let list = jane.get(&format!("{MAPS}?filter=metadata.name%3Da")).await.expect("an answer").ok().expect("a list");
    assert_eq!((names(&list), &list["data"][0]["id"]), (vec!["a"], &json!("hers/a")), "only where she may");
    let links = &list["data"][0]["links"];
    assert!(links.get("update").is_none() && links.get("remove").is_none(), "{links}");
    refused("others'", &jane.get(&format!("{MAPS}/others")).await.expect("an answer"), 403, "forbidden");
    refused("others'", &jane.get(&format!("{MAPS}/others/a")).await.expect("an answer"), 403, "forbidden");
    refused("a change", &jane.delete(&format!("{MAPS}/hers/a")).await.expect("an answer"), 403, "forbidden");
    let start = format!("{VMS}/hers/vm?action=start");
    refused("an action", &jane.post(&start, &json!({})).await.expect("an answer"), 403, "forbidden");
    let setting = jane.put("/v3/settings/first-login", &json!({"value": "false"})).await.expect("an answer");
    refused("a setting", &setting, 403, "forbidden");
    let schemas = jane.get("/v1/harvester/schemas").await.expect("an answer").ok().expect("schemas");
    let find =
        |id: &str| schemas["data"].as_array().expect("schemas").iter().find(|schema| schema["id"] == id).cloned();
    assert_eq!(find("configmap").expect("maps")["collectionMethods"], json!(["GET"]));
    assert!(find("rbac.authorization.k8s.io.clusterrole").is_none() && find("node").is_none());
    let users = jane.get("/v3/users").await.expect("an answer").ok().expect("users");
    assert_eq!(users["count"], 1, "only herself");

    // What she may not see does not reach her, and the end of her account ends her connection.
    let bearer = format!("Bearer {text}");
    let socket = server.websocket_as(None, "/v1/harvester/subscribe", &[], &[("authorization", &bearer)]).await;
    let mut socket = socket.expect("an answer").expect("a stream");
    ask(&mut socket, &json!({"resourceType": "configmap"})).await;
    assert_eq!(next(&mut socket).await["name"], "resource.start");
    for namespace in ["others", "hers"] {
        let body = json!({"metadata": {"name": "news", "namespace": namespace}});
        admin.post(MAPS, &body).await.expect("an answer").ok().expect("made");
    }
    loop {
        let event = next(&mut socket).await;
        let id = event["data"]["id"].as_str().unwrap_or_default();
        assert!(event["name"] == "resource.create" && !id.starts_with("others/"), "{event}");
        if id == "hers/news" {
            break;
        }
    }
    admin.delete("/api/v1/namespaces/kube-system/secrets/user-jane").await.expect("an answer").ok().expect("deleted");
    assert_eq!(jane.get("/v3/tokens").await.expect("an answer").status, 401);
    let end = tokio::time::timeout(patience(), async { while let Ok(Some(_)) = socket.receive().await {} }).await;
    assert!(end.is_ok(), "the connection ends with the account");
}

async fn ask(socket: &mut WebSocket, wish: &Value) {
    socket.send_text(&wish.to_string()).await.expect("sent");
}

/// The next message that is no ping.
async fn next(socket: &mut WebSocket) -> Value {
    loop {
        let message = tokio::time::timeout(patience(), socket.receive()).await.expect("a message in time");
        let message = message.expect("a message").expect("the stream is open");
        let message: Value = serde_json::from_slice(&message).expect("JSON");
        if message["name"] != "ping" {
            return message;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_over_a_websocket() {
    let server = start().await;
    let client = server.client().expect("a client");
    let refusal = server.websocket_as(None, "/v1/harvester/subscribe", &[], &[]).await.expect("an answer");
    assert_eq!(refusal.expect_err("refused").code, 401);
    client.post(MAPS, &map("before", "1")).await.expect("an answer").ok().expect("made");
    let since = client.get(MAPS).await.expect("an answer").json()["revision"].clone();
    client.post(MAPS, &map("since", "1")).await.expect("an answer").ok().expect("made");
    let mut socket =
        server.websocket_offering("/v1/harvester/subscribe", &[]).await.expect("an answer").expect("a stream");
    for (wish, words) in [
        (json!({"resourceType": "nothing"}), "no schema"),
        (json!(3), "cannot be read"),
        (json!({"resourceType": "configmap", "resourceVersion": "x"}), "resourceVersion"),
    ] {
        ask(&mut socket, &wish).await;
        let error = next(&mut socket).await;
        assert_eq!(error["name"], "resource.error", "{wish}: {error}");
        assert!(error["data"]["error"].as_str().unwrap_or_default().contains(words), "{error}");
        assert_eq!(next(&mut socket).await["name"], "resource.stop");
    }
    ask(&mut socket, &json!({"resourceType": "configmap", "resourceVersion": since, "selector": "mine=yes"})).await;
    let started = json!({"name": "resource.start", "resourceType": "configmap", "selector": "mine=yes"});
    assert_eq!(next(&mut socket).await, started);
    let event = next(&mut socket).await;
    assert_eq!((&event["name"], &event["data"]["id"]), (&json!("resource.create"), &json!("default/since")), "{event}");
    assert_eq!(event["data"]["metadata"]["state"]["name"], "active");
    ask(&mut socket, &json!({"resourceType": "secret", "id": "default/mine"})).await;
    assert_eq!(next(&mut socket).await["name"], "resource.start");
    for name in ["other", "mine"] {
        let body = json!({"metadata": {"name": name, "namespace": "default"}});
        client.post("/v1/secrets", &body).await.expect("an answer").ok().expect("made");
    }
    let event = next(&mut socket).await;
    assert_eq!((&event["resourceType"], &event["data"]["id"]), (&json!("secret"), &json!("default/mine")), "{event}");
    let since = format!("{MAPS}/default/since");
    client.patch(&since, "merge-patch", &json!({"data": {"a": "2"}})).await.expect("an answer").ok().expect("changed");
    assert_eq!(next(&mut socket).await["name"], "resource.change");
    client.delete(&since).await.expect("an answer");
    assert_eq!(next(&mut socket).await["name"], "resource.remove");
    ask(&mut socket, &json!({"resourceType": "configmap", "selector": "mine=yes", "stop": true})).await;
    assert_eq!(next(&mut socket).await["name"], "resource.stop");
    socket.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_do_as_they_are_told() {
    let server = Croft::start_node(StoreKind::Embedded, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let mut machine = empty("vm");
    machine["metadata"]["namespace"] = json!("default");
    machine["spec"]["runStrategy"] = json!("RerunOnFailure");
    client.post(VMS, &machine).await.expect("an answer").ok().expect("made");
    let one = format!("{VMS}/default/vm");
    let act = async |action: &str, body: Value| {
        client.post(&format!("{one}?action={action}"), &body).await.expect("an answer")
    };
    let offers = async |what: &str, action: &str| {
        eventually(what, async || {
            let vm = client.get(&one).await.expect("an answer").json();
            if vm["actions"].get(action).is_some() { Ok(vm) } else { Err(vm["actions"].to_string()) }
        })
        .await
    };
    status_becomes(&client, "vm", "Running").await;
    let vm = offers("a running machine", "pause").await;
    assert_eq!(vm["metadata"]["state"]["name"], "running", "{vm}");
    assert_eq!(vm["actions"]["stop"], format!("{}{one}?action=stop", server.url));
    assert!(vm["actions"].get("start").is_none() && vm["actions"].get("migrate").is_none(), "{}", vm["actions"]);

    refused("no such action", &act("dance", json!({})).await, 404, "dance");
    refused("one node", &act("migrate", json!({"nodeName": ""})).await, 409, "no other node");
    refused("hot-plug", &act("cpuAndMemoryHotplug", json!({"sockets": 2})).await, 422, "hotplug is not possible");
    refused("no claim", &act("addVolume", json!({"diskName": "d", "volumeSourceName": "none"})).await, 404, "none");
    refused("no disk", &act("addVolume", json!({})).await, 422, "diskName");
    refused("nothing to remove", &act("removeVolume", json!({"diskName": "x"})).await, 409, "x");
    let missing = client.post(&format!("{VMS}/default/none?action=start"), &json!({})).await.expect("an answer");
    refused("no machine", &missing, 404, "not found");

    assert_eq!(act("pause", json!({})).await.status, 204);
    offers("a paused machine", "unpause").await;
    assert_eq!(act("unpause", json!({})).await.status, 204);
    offers("a running machine", "pause").await;
    assert_eq!(act("stop", json!({})).await.status, 204);
    status_becomes(&client, "vm", "Stopped").await;
    let vm = offers("a stopped machine", "start").await;
    assert_eq!((&vm["spec"]["runStrategy"], &vm["metadata"]["state"]["name"]), (&json!("Halted"), &json!("stopped")));
    refused("stopped", &act("stop", json!({})).await, 409, "not running");
    assert_eq!(act("start", json!({})).await.status, 204);
    status_becomes(&client, "vm", "Running").await;
    let vm = client.get(&one).await.expect("an answer").json();
    assert_eq!(vm["spec"]["runStrategy"], "RerunOnFailure", "it runs as before");
    assert_eq!(act("restart", json!({})).await.status, 204);
    assert!(matches!(
        client.delete(&format!("{one}?propagationPolicy=Foreground")).await.expect("an answer").status,
        200 | 204
    ));
    eventually("the machine is gone", async || {
        let answer = client.get(&one).await.expect("an answer");
        if answer.status == 404 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
}

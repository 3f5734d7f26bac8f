//! Tokens of other issuers stand for users here: whom the configuration says, as long as the issuer vouches for them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use croft_e2e::oidc_config::{Config, code, document, known, logged, metric, plainly, whoami};
use croft_e2e::oidc_issuer::{AUDIENCE, Issuer, Key, Mood, seconds, unsigned};
use croft_e2e::oidc_provider::OidcProvider;
use croft_testkit::{Croft, StoreKind, eventually};
use serde_json::{Value, json};

const REVIEW: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const OWN_AUDIENCE: &str = "https://kubernetes.default.svc";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_stand_for_the_users_that_the_configuration_says() {
    let (first, second) = (Issuer::start().await.expect("an issuer"), Issuer::start().await.expect("an issuer"));
    let by_expression = json!({
        "issuer": second.described(),
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "example.org"},
            {"expression": "claims.exp - claims.iat <= 3600", "message": "an hour at most"},
        ],
        "claimMappings": {
            "username": {"expression": "claims.email_verified ? 'mail:' + claims.email : 'sub:' + claims.sub"},
            "groups": {"expression": "claims.roles.split(',').map(r, 'role:' + r)"},
            "uid": {"claim": "oid"},
            "extra": [{"key": "example.org/team", "valueExpression": "claims.team"}],
        },
        "userValidationRules": [{"expression": "!('role:robot' in user.groups)", "message": "no robots"}],
    });
    let anonymous = json!({"enabled": true, "conditions": [{"path": "/livez"}, {"path": "/readyz"}]});
    let server = Config::new(&[plainly(&first), by_expression], &anonymous).start().await;
    known(&server, &first).await;

    let ann = first.token("ann", &json!({"groups": ["staff"], "jti": "t-1"}));
    let user = whoami(&server, &ann).await.expect("ann is known");
    assert_eq!(
        user,
        json!({"username": "corp:ann", "groups": ["corp:staff", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=t-1"]}})
    );
    let claims = json!({"hd": "example.org", "email": "b@example.org", "email_verified": true, "roles": "a,b",
        "oid": "u-7", "team": ["red", "blue"]});
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        second.token("bob", &claims)
    };
    let bob = with("jti", json!("t-2"));
    eventually("the second issuer is known", async || whoami(&server, &bob).await).await;
    kubectl_shows(&server, &bob).await;
    rbac_applies(&server, &ann).await;
    token_reviews_accept_them(&server, &bob).await;
    audit_tells_them(&server).await;

    let later = seconds() + 4000;
    for (what, token) in [
        ("for somebody else", first.token("eve", &json!({"aud": "other"}))),
        ("expired", first.token("eve", &json!({"exp": 1}))),
        ("without an end", first.token("eve", &json!({"exp": null}))),
        ("not yet good", first.token("eve", &json!({"nbf": later, "exp": later + 9}))),
        ("of nobody that is trusted", first.token("eve", &json!({"iss": "https://elsewhere.example"}))),
        ("of one issuer by the key of another", second.key().sign(&first.claims("eve", &json!({})))),
        ("with a forged key", Key::new("first").sign(&first.claims("eve", &json!({})))),
        ("not signed", format!("{}.", unsigned(&json!({"alg": "none"}), &first.claims("eve", &json!({}))))),
        ("by HMAC", format!("{}.AAAA", unsigned(&json!({"alg": "HS256"}), &first.claims("eve", &json!({}))))),
        ("with a group that is no group", first.token("eve", &json!({"groups": 7}))),
        ("without a required claim", with("hd", Value::Null)),
        ("for too long", with("exp", json!(later))),
        ("of a robot", with("roles", json!("robot"))),
        ("with claims kept elsewhere", first.token("eve", &json!({"_claim_names": {"groups": "src"}}))),
    ] {
        assert_eq!(code(&server, &token).await, 401, "{what}");
    }
    // Several audiences are one too many for nobody.
    assert_eq!(code(&server, &first.token("ann", &json!({"aud": ["other", AUDIENCE]}))).await, 201);

    // Without credentials, only these paths.
    let nobody = server.anonymous().expect("a client");
    for (path, expected) in [("/livez", 200), ("/readyz", 200), ("/livez/ping", 401), ("/version", 401), ("/api", 401)]
    {
        assert_eq!(nobody.get(path).await.expect("an answer").status, expected, "{path}");
    }
    let latency = "apiserver_authentication_jwt_authenticator_latency_seconds_count";
    for result in ["result=\"success\"", "result=\"failure\""] {
        metric(&server, latency, result).await.expect("it is counted");
    }
    let fetched = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
    metric(&server, fetched, "result=\"success\"").await.expect("it is told");
    metric(&server, "apiserver_authentication_config_controller_last_config_info", "sha256:")
        .await
        .expect("it is told");
}

async fn kubectl_shows(server: &Croft, token: &str) {
    let bare = server.data_dir().join("bare.kubeconfig");
    let authority = server.data_dir().join("bare.ca");
    std::fs::write(&authority, &server.ca_pem).expect("the authority is written");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": authority}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&bare, config.to_string()).expect("the kubeconfig is written");
    let kubectl = croft_testkit::Kubectl::new(&bare).expect("kubectl is there");
    let is_new = kubectl.minor_version().await.expect("kubectl has a version") >= 28;
    let args = if is_new { &["auth", "whoami", "-o", "json"][..] } else { &["alpha", "auth", "whoami", "-o", "json"] };
    let shown = if kubectl.minor_version().await.expect("a version") >= 27 {
        kubectl.ok(args).await.json()["status"]["userInfo"].clone()
    } else {
        // Debian's is older than the command.
        let review = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}"#;
        let args = ["create", "--validate=false", "-f", "-", "-o", "json"];
        kubectl.ok_with(&args, review).await.json()["status"]["userInfo"].clone()
    };
    assert_eq!(shown["username"], "mail:b@example.org");
    assert_eq!(shown["uid"], "u-7");
    assert_eq!(shown["groups"], json!(["role:a", "role:b", "system:authenticated"]));
    assert_eq!(shown["extra"]["example.org/team"], json!(["red", "blue"]));
    assert_eq!(shown["extra"]["authentication.kubernetes.io/credential-id"], json!(["JTI=t-2"]));
}

async fn rbac_applies(server: &Croft, token: &str) {
    let ann = server.bearer(token).expect("a client");
    let refused = ann.get("/api/v1/namespaces").await.expect("an answer");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("User \\\"corp:ann\\\" cannot list resource"), "{}", refused.text());
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "staff"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "corp:staff"}]});
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    server.client().expect("a client").post(path, &binding).await.expect("an answer").ok().expect("it is bound");
    let pods = ann.get("/api/v1/pods").await.expect("an answer");
    assert_eq!(pods.status, 200, "{}", pods.text());
    assert_eq!(ann.get("/api/v1/secrets").await.expect("an answer").status, 403);
    // What is changed is written down under that name.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(ann.post("/api/v1/namespaces/default/configmaps", &map).await.expect("an answer").status, 403);
}

async fn token_reviews_accept_them(server: &Croft, token: &str) {
    let admin = server.client().expect("a client");
    let ask = async |audiences: Value| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences}});
        admin.post(REVIEW, &review).await.expect("an answer").ok().expect("it is reviewed")["status"].clone()
    };
    for audiences in [json!([]), json!([OWN_AUDIENCE, "other"])] {
        let status = ask(audiences).await;
        assert_eq!(status["authenticated"], true, "{status}");
        assert_eq!(status["user"]["username"], "mail:b@example.org");
        assert_eq!(status["user"]["extra"]["example.org/team"], json!(["red", "blue"]));
        assert_eq!(status["audiences"], json!([OWN_AUDIENCE]));
    }
    // As upstream: the token is for this server, whatever its issuer calls that.
    assert_eq!(ask(json!([AUDIENCE])).await, json!({"user": {}, "error": "invalid bearer token"}));
    let (signed, _) = token.rsplit_once('.').expect("a token has parts");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": format!("{signed}.AAAA")}});
    let status = admin.post(REVIEW, &review).await.expect("an answer").ok().expect("it is reviewed")["status"].clone();
    let error = status["error"].as_str().unwrap_or_default();
    assert!(error.contains("oidc: verify token: failed to verify signature"), "{status}");
}

async fn audit_tells_them(server: &Croft) {
    let path = server.data_dir().join("audit/audit.log");
    eventually("it is written down", async || {
        let log = std::fs::read_to_string(&path)?;
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut of_ann = events.filter(|event| event["user"]["username"] == "corp:ann");
        let event = of_ann.next_back().context("nothing of ann")?;
        ensure!(event["user"]["groups"] == json!(["corp:staff", "system:authenticated"]), "{event}");
        let id = &event["user"]["extra"]["authentication.kubernetes.io/credential-id"];
        ensure!(*id == json!(["JTI=t-1"]), "{event}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_change_are_fetched_again_but_not_for_every_forger() {
    let issuer = Issuer::start().await.expect("an issuer");
    let server = Config::new(&[plainly(&issuer)], &Value::Null).start().await;
    known(&server, &issuer).await;
    let old = issuer.key();
    let before = issuer.asked_for_keys();

    issuer.rotate("second");
    assert_eq!(code(&server, &issuer.token("ann", &json!({}))).await, 201, "a new key is fetched at once");
    assert_eq!(issuer.asked_for_keys(), before + 1);
    let late = old.sign(&issuer.claims("late", &json!({})));
    assert_eq!(code(&server, &late).await, 401, "a key that the issuer has withdrawn is good no more");

    // Many at once, with keys that nobody has.
    let forged: Vec<String> =
        (0..60).map(|n| Key::new(&format!("forged-{n}")).sign(&issuer.claims("eve", &json!({})))).collect();
    let codes = futures::future::join_all(forged.iter().map(|token| code(&server, token))).await;
    assert!(codes.iter().all(|code| *code == 401), "{codes:?}");
    for token in &forged {
        assert_eq!(code(&server, token).await, 401);
    }
    let asked = issuer.asked_for_keys() - before;
    assert!(asked <= 5, "{asked} requests for keys after 120 forged tokens");

    // An issuer that has gone away takes its keys with it no sooner than they would be looked at again.
    issuer.set_mood(Mood::Down);
    assert_eq!(code(&server, &issuer.token("carl", &json!({}))).await, 201);
    // Nor does a forger have to wait for it.
    assert_eq!(code(&server, &forged[0]).await, 401);
    assert_eq!(code(&server, &issuer.token("dora", &json!({}))).await, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withdrawn_keys_are_good_no_more_even_if_there_are_no_others() {
    let issuer = Issuer::start().await.expect("an issuer");
    let server = Config::new(&[plainly(&issuer)], &Value::Null).start().await;
    known(&server, &issuer).await;
    let old = issuer.key();
    issuer.withdraw();
    eventually("the keys are gone", async || {
        // An unknown key has them fetched again.
        ensure!(code(&server, &Key::new("forged").sign(&issuer.claims("eve", &json!({})))).await == 401);
        let late = old.sign(&issuer.claims("late", &json!({"jti": issuer.asked_for_keys().to_string()})));
        ensure!(code(&server, &late).await == 401);
        Ok::<_, anyhow::Error>(())
    })
    .await;
    logged(&server, "publishes no key").await;
    issuer.rotate("second");
    eventually("new keys are good", async || whoami(&server, &issuer.token("ann", &json!({}))).await.map(drop)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_is_refused_at_once_and_nobody_is_a_local_user_by_name() {
    let issuer = Issuer::start().await.expect("an issuer");
    let mut names = plainly(&issuer);
    names["claimMappings"] =
        json!({"username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "groups", "prefix": ""}});
    let server = Config::new(&[names], &Value::Null).start().await;
    known(&server, &issuer).await;
    for id in ["t-1", "onrtac:t/2"] {
        let token = issuer.token("ann", &json!({"jti": id}));
        assert_eq!(code(&server, &token).await, 201);
        let program = croft_testkit::binary().expect("the program");
        let mut revoke = tokio::process::Command::new(program);
        let shown = format!("JTI={id}");
        let named = if id == "t-1" { &token } else { &shown };
        let out = revoke.args(["token", "revoke", named]).env("CROFT_DATA_DIR", server.data_dir()).output().await;
        let out = out.expect("croft runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(code(&server, &token).await, 401, "{id}");
    }
    assert_eq!(code(&server, &issuer.token("ann", &json!({"jti": "t-3"}))).await, 201);

    let text = |text: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
    let jane = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "croft.io/user", "metadata": {"name": "user-jane"},
        "data": {"username": text("jane"), "password-hash": text("x"), "groups": text("staff")},
    });
    let admin = server.client().expect("a client");
    admin.post("/api/v1/namespaces/kube-system/secrets", &jane).await.expect("an answer").ok().expect("a user");
    let other = server.bearer(&issuer.token("jane", &json!({"groups": ["staff"]}))).expect("a client");
    for path in ["/v3/tokens", "/v3/clusters/local?action=generateKubeconfig"] {
        let refused = other.post(path, &json!({})).await.expect("an answer");
        assert_eq!(refused.status, 403, "{path}: {}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_that_cannot_be_asked_keeps_nobody_else_out() {
    let moods = [
        (Mood::Down, "cannot ask"),
        (Mood::Stranger, "issuer did not match the issuer returned by provider"),
        (Mood::Redirecting, "redirects are not followed"),
        (Mood::Endless, "is larger than 1048576 bytes"),
        (Mood::Broken, "cannot be used: the key set is no JSON Web Key Set"),
        (Mood::Silent, ""),
    ];
    let mut issuers = Vec::new();
    for (mood, _) in moods {
        let issuer = Issuer::start().await.expect("an issuer");
        issuer.set_mood(mood);
        issuers.push(issuer);
    }
    let well = Issuer::start().await.expect("an issuer");
    let mistrusted = Issuer::start().await.expect("an issuer");
    let mut described: Vec<Value> = issuers.iter().chain([&well]).map(plainly).collect();
    let mut other = plainly(&mistrusted);
    other["issuer"]["certificateAuthority"] = json!(well.ca_pem);
    described.push(other);
    let server = Config::new(&described, &Value::Null).start().await;
    known(&server, &well).await;
    for (_, words) in moods {
        logged(&server, words).await;
    }
    logged(&server, "invalid peer certificate").await;
    for (issuer, (mood, _)) in issuers.iter().zip(moods) {
        assert_eq!(code(&server, &issuer.token("ann", &json!({}))).await, 401, "{mood:?}");
    }
    assert_eq!(code(&server, &mistrusted.token("ann", &json!({}))).await, 401);
    logged(&server, "oidc: authenticator not initialized: ").await;
    let fetched = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
    metric(&server, fetched, "result=\"failure\"").await.expect("it is told");
    // They are asked again.
    for issuer in &issuers[..5] {
        issuer.set_mood(Mood::Well);
    }
    for issuer in &issuers[..5] {
        known(&server, issuer).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_is_read_again_when_it_changes() {
    let (first, second) = (Issuer::start().await.expect("an issuer"), Issuer::start().await.expect("an issuer"));
    let config = Config::new(&[plainly(&first)], &Value::Null);
    let server = config.start().await;
    known(&server, &first).await;
    let reloads = "apiserver_authentication_config_controller_automatic_reloads_total";
    let counted = async |status: &str, times: u32| {
        let label = format!("status=\"{status}\"");
        eventually("it is counted", async || {
            let line = metric(&server, reloads, &label).await?;
            ensure!(line.ends_with(&format!(" {times}")), "{line}");
            Ok(())
        })
        .await;
    };

    // What is no good changes nothing.
    let mut wrong = plainly(&second);
    wrong["claimMappings"]["username"] = json!({"expression": "claims."});
    config.write(&document(&[plainly(&first), wrong], &Value::Null));
    counted("failure", 1).await;
    logged(&server, "jwt[1].claimMappings.username.expression: Invalid value").await;
    config.write(&document(&[plainly(&first)], &json!({"enabled": false})));
    counted("failure", 2).await;
    logged(&server, "anonymous: Forbidden: changed from initial configuration file").await;
    assert_eq!(code(&server, &first.token("ann", &json!({}))).await, 201);
    assert_eq!(server.anonymous().expect("a client").get("/livez").await.expect("an answer").status, 200);

    // What is good is used: for tokens that were verified a moment ago too.
    let ann = first.token("ann", &json!({}));
    assert_eq!(whoami(&server, &ann).await.expect("ann is known")["username"], "corp:ann");
    let asked = first.asked_for_keys();
    let mut renamed = plainly(&first);
    renamed["claimMappings"]["username"]["prefix"] = json!("firm:");
    config.write(&document(&[renamed, plainly(&second)], &Value::Null));
    counted("success", 1).await;
    assert_eq!(whoami(&server, &ann).await.expect("ann is known")["username"], "firm:ann");
    assert_eq!(first.asked_for_keys(), asked, "keys that are known are not fetched again");
    known(&server, &second).await;
    config.write(&document(&[plainly(&second)], &Value::Null));
    counted("success", 2).await;
    assert_eq!(code(&server, &ann).await, 401);
    assert_eq!(code(&server, &second.token("bob", &json!({}))).await, 201);
}

/// What the program says that does not start.
fn refused(args: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(croft_testkit::binary().expect("the program is built"));
    command.args(["server", "--no-node", "--listen=127.0.0.1:0", "--data-dir"]).arg(dir.path()).args(args);
    let output = command.output().expect("the program runs");
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn written(path: &Path, jwt: &[Value]) -> String {
    std::fs::write(path, document(jwt, &Value::Null)).expect("the file is written");
    format!("--authentication-config={}", path.display())
}

#[tokio::test]
async fn a_mistake_keeps_the_server_from_starting() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.yaml");
    let issuer = json!({"issuer": {"url": "https://a", "audiences": ["a"], "uri": 1}, "claimMappings": {}});
    let said = refused(&[&written(&path, &[issuer])]);
    for expected in [
        "--authentication-config: /",
        "a.yaml: [jwt[0].issuer.uri: Forbidden: there is no such field",
        "jwt[0].claimMappings.username: Required value: claim or expression is required",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let said = refused(&["--oidc-issuer-url=https://a", "--oidc-client-id=a", &written(&path, &[])]);
    assert!(said.contains("are mutually exclusive"), "{said}");
    let said = refused(&["--oidc-issuer-url=https://a"]);
    assert!(said.contains("oidc-issuer-url and oidc-client-id must be specified together"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_of_a_real_provider_come_in_by_flags_alone() {
    let provider = OidcProvider::start().await.expect("the provider starts");
    let (url, authority) =
        (format!("--oidc-issuer-url={}", provider.issuer), format!("--oidc-ca-file={}", provider.ca_file.display()));
    let options = [
        &*url,
        "--oidc-client-id=croft",
        &*authority,
        "--oidc-username-claim=email",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        "--oidc-required-claim=email=admin@example.org",
    ];
    let server = Croft::start_with(StoreKind::Embedded, &options).await.expect("the server starts");
    let admin = provider.log_in("croft", "admin").await.expect("admin logs in");
    let user = eventually("admin is known", async || whoami(&server, &admin).await).await;
    assert_eq!(user["username"], "admin@example.org");
    assert_eq!(user["groups"], json!(["oidc:staff", "oidc:admins", "system:authenticated"]));
    for (what, client, user) in [
        ("a claim that is not the required one", "croft", "ann"),
        ("for another client", "other", "admin"),
        ("another algorithm, which is not allowed either", "croft-es", "admin"),
    ] {
        let token = provider.log_in(client, user).await.expect("somebody logs in");
        assert_eq!(code(&server, &token).await, 401, "{what}");
    }
}

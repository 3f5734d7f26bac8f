//! The second factor of local users, with codes from `oathtool`.

use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_e2e::logins::{LOGIN, PASSWORD, World, command, croft, start};
use croft_testkit::{Answer, Call, Client, Kubectl, eventually};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

const USERS: &str = "/v3/users";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

async fn log_in(client: &Client, password: &str, code: Option<&str>) -> Answer {
    let mut body = json!({"username": "admin", "password": password});
    if let Some(code) = code {
        body["totp"] = json!(code);
    }
    client.post(LOGIN, &body).await.expect("an answer")
}

/// `201`, or the code and the reason.
fn outcome(answer: &Answer) -> String {
    let reason = answer.json()["code"].as_str().unwrap_or_default().to_owned();
    format!("{} {reason}", answer.status).trim().to_owned()
}

async fn act(client: &Client, token: &str, action: &str, body: &Value) -> Answer {
    let call = Call::new(Method::POST, &format!("{USERS}?action={action}")).json(body);
    client.send(call.header("authorization", &format!("Bearer {token}"))).await.expect("an answer")
}

async fn basic(client: &Client, password: &str) -> Answer {
    let credentials = BASE64_STANDARD.encode(format!("admin:{password}"));
    let call = Call::new(Method::GET, "/api/v1/namespaces").header("authorization", &format!("Basic {credentials}"));
    client.send(call).await.expect("an answer")
}

async fn as_bearer(client: &Client, token: &str) -> u16 {
    let call = Call::new(Method::GET, "/api/v1/namespaces").header("authorization", &format!("Bearer {token}"));
    client.send(call).await.expect("an answer").status
}

fn token(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["token"].as_str().expect("a token").to_owned()
}

/// What an app would show so many steps from now.
async fn code(secret: &str, steps_ahead: i64) -> String {
    let then = jiff::Timestamp::now().as_second() + 30 * steps_ahead;
    let mut oathtool = Command::new("oathtool");
    let out =
        oathtool.args(["--totp", "--base32", secret, &format!("--now=@{then}")]).output().await.expect("oathtool");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

/// Any other code.
fn not(code: &str) -> String {
    let last = if code.ends_with('1') { '2' } else { '1' };
    format!("{}{last}", &code[..5])
}

/// The secret and the recovery codes.
async fn enrol(client: &Client, token: &str) -> (String, Vec<String>) {
    let begun = act(client, token, "enabletotp", &json!({"currentPassword": PASSWORD})).await.ok().expect("a key");
    let secret = begun["secret"].as_str().expect("a secret").to_owned();
    let code = code(&secret, 0).await;
    let done = act(client, token, "confirmtotp", &json!({"totp": code})).await.ok().expect("it is in force");
    let codes: Vec<String> = serde_json::from_value(done["recoveryCodes"].clone()).expect("codes");
    (secret, codes)
}

/// Everything below a directory, which is small.
fn contents(dir: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.extend(std::fs::read(&path).unwrap_or_default());
        }
    }
    all
}

fn has(all: &[u8], text: &str) -> bool {
    all.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_a_second_factor_needs_a_code_for_each_login() {
    let World { mut server, dir: _dir } = start(&[]).await;
    let anybody = server.anonymous().expect("a client");
    let other = token(&log_in(&anybody, PASSWORD, None).await);
    let session = token(&log_in(&anybody, PASSWORD, None).await);
    assert_eq!(basic(&anybody, PASSWORD).await.status, 200);

    // It is not in force before a code was shown, and nobody begins without the password.
    for (body, reason) in
        [(json!({}), "MissingRequired"), (json!({"currentPassword": "not it at all"}), "InvalidBodyContent")]
    {
        let refused = act(&anybody, &session, "enabletotp", &body).await;
        assert_eq!(outcome(&refused), format!("422 {reason}"), "{}", refused.text());
    }
    let refused = act(&anybody, &session, "confirmtotp", &json!({"totp": "000000"})).await;
    assert_eq!(outcome(&refused), "422 InvalidAction", "{}", refused.text());
    let begun = act(&anybody, &session, "enabletotp", &json!({"currentPassword": PASSWORD})).await.ok().expect("a key");
    let first = begun["secret"].as_str().expect("a secret");
    let refused = act(&anybody, &session, "confirmtotp", &json!({"totp": not(&code(first, 0).await)})).await;
    assert_eq!(outcome(&refused), "422 TotpInvalid", "{}", refused.text());
    assert_eq!(log_in(&anybody, PASSWORD, None).await.status, 201);
    let before_code = code(first, 0).await;
    let (secret, recovery) = enrol(&anybody, &session).await;
    assert_ne!(secret, first, "each beginning makes another key");
    let enrolled_with = code(&secret, 0).await;
    assert_eq!(recovery.iter().collect::<HashSet<_>>().len(), 10, "{recovery:?}");
    let refused = act(&anybody, &session, "enabletotp", &json!({"currentPassword": PASSWORD})).await;
    assert_eq!(outcome(&refused), "422 InvalidAction", "{}", refused.text());
    assert_eq!(as_bearer(&anybody, &session).await, 200);
    assert_eq!(as_bearer(&anybody, &other).await, 401, "what was opened with a password alone is over");

    // The password alone lets nobody in, on no way.
    let refused = basic(&anybody, PASSWORD).await;
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (401, Some("Unauthorized")), "{}", refused.text());
    assert!(refused.text().contains("second factor"), "{}", refused.text());
    let pair = format!("{PASSWORD}{}", code(&secret, 1).await);
    assert_eq!(basic(&anybody, &pair).await.status, 401);
    for (password, code, expected) in [
        (PASSWORD, None, "401 TotpRequired"),
        (PASSWORD, Some(""), "401 TotpRequired"),
        ("not it at all", Some(enrolled_with.as_str()), "401 Unauthorized"),
        (PASSWORD, Some(before_code.as_str()), "401 TotpInvalid"),
    ] {
        let refused = log_in(&anybody, password, code).await;
        assert_eq!(outcome(&refused), expected, "{password} {code:?}");
    }
    // Of those who show the same code at the same time, one is let in; and nobody with an older one.
    let next = code(&secret, 1).await;
    let tries = (0..4).map(|_| log_in(&anybody, PASSWORD, Some(&next)));
    let tries: Vec<Answer> = futures::future::join_all(tries).await;
    let let_in: Vec<&Answer> = tries.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(let_in.len(), 1, "{:?}", tries.iter().map(outcome).collect::<Vec<_>>());
    let session = token(let_in[0]);
    assert_eq!(outcome(&log_in(&anybody, PASSWORD, Some(&enrolled_with)).await), "401 TotpInvalid");

    // What is made with a session works without codes.
    let key = Call::new(Method::POST, "/v3/tokens").json(&json!({"description": "a key"}));
    let key = anybody.send(key.header("authorization", &format!("Bearer {session}"))).await.expect("an answer");
    assert_eq!(as_bearer(&anybody, &token(&key)).await, 200);

    // A recovery code is good once, however it is typed; another password changes nothing about it.
    let (typed, new) = (recovery[0].to_uppercase().replace('-', " "), "another-horse-battery");
    let session = token(&log_in(&anybody, PASSWORD, Some(&typed)).await);
    assert_eq!(outcome(&log_in(&anybody, PASSWORD, Some(&recovery[0])).await), "401 TotpInvalid");
    let changed = json!({"currentPassword": PASSWORD, "newPassword": new});
    act(&anybody, &session, "changepassword", &changed).await.ok().expect("the password is changed");
    assert_eq!(outcome(&log_in(&anybody, new, None).await), "401 TotpRequired");
    let admin = server.client().expect("a client");
    let me = admin.get(&format!("{USERS}/user-admin")).await.expect("an answer").ok().expect("the admin");
    assert_eq!((&me["totpEnabled"], &me["recoveryCodesLeft"]), (&json!(true), &json!(9)), "{me}");
    assert!(!me.to_string().contains(&secret));

    // The file sets the password again at each start, and leaves the second factor alone.
    server.restart().await.expect("the server starts again");
    let anybody = server.anonymous().expect("a client");
    assert_eq!(outcome(&log_in(&anybody, PASSWORD, None).await), "401 TotpRequired");
    for used in [&next, &recovery[0]] {
        assert_eq!(outcome(&log_in(&anybody, PASSWORD, Some(used)).await), "401 TotpInvalid");
    }
    // Nothing of it is on the disk: neither in the store, which is encrypted, nor in the logs.
    let all = contents(server.data_dir());
    assert!(has(&all, "confirmtotp"), "the audit log tells that it was done");
    for text in [&secret, &BASE64_STANDARD.encode(&secret), &recovery[0], &recovery[1], &format!("\"{next}\"")] {
        assert!(!has(&all, text), "{text}");
    }

    let session = token(&log_in(&anybody, PASSWORD, Some(&recovery[1])).await);
    for (body, reason) in [(json!({}), "MissingRequired"), (json!({"totp": recovery[1]}), "TotpInvalid")] {
        assert_eq!(outcome(&act(&anybody, &session, "disabletotp", &body).await), format!("422 {reason}"));
    }
    let me = act(&anybody, &session, "disabletotp", &json!({"totp": recovery[2]})).await.ok().expect("it is off");
    assert_eq!(me["totpEnabled"], false, "{me}");
    assert_eq!(log_in(&anybody, PASSWORD, None).await.status, 201);
    assert_eq!(
        outcome(&act(&anybody, &session, "disabletotp", &json!({"totp": recovery[3]})).await),
        "422 InvalidAction"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_codes_lock_a_name_as_wrong_passwords_do() {
    let World { server, dir: _dir } = start(&["--login-attempts=3", "--login-lock=1h"]).await;
    let anybody = server.anonymous().expect("a client");
    let session = token(&log_in(&anybody, PASSWORD, None).await);
    // Whoever found a session open does not get to guess the first code.
    let begun = act(&anybody, &session, "enabletotp", &json!({"currentPassword": PASSWORD})).await.ok().expect("a key");
    let right = code(begun["secret"].as_str().expect("a secret"), 0).await;
    for _ in 0..5 {
        let refused = act(&anybody, &session, "confirmtotp", &json!({"totp": not(&right)})).await;
        assert_eq!(outcome(&refused), "422 TotpInvalid", "{}", refused.text());
    }
    let refused = act(&anybody, &session, "confirmtotp", &json!({"totp": right})).await;
    assert_eq!(outcome(&refused), "422 InvalidAction", "{}", refused.text());
    let (secret, recovery) = enrol(&anybody, &session).await;
    let right = code(&secret, 1).await;
    for _ in 0..3 {
        assert_eq!(outcome(&log_in(&anybody, PASSWORD, None).await), "401 TotpRequired", "forgives nothing");
        assert_eq!(outcome(&log_in(&anybody, PASSWORD, Some("aaaaa-bbbbb")).await), "401 TotpInvalid");
    }
    for code in [None, Some(right.as_str()), Some(recovery[0].as_str())] {
        assert_eq!(log_in(&anybody, PASSWORD, code).await.status, 429, "{code:?}");
    }
    // Nor can the codes be guessed by somebody who found a session.
    assert_eq!(act(&anybody, &session, "disabletotp", &json!({"totp": recovery[0]})).await.status, 429);
    let admin = server.client().expect("a client");
    let metrics = admin.get("/metrics").await.expect("an answer").text();
    for line in [
        "croft_logins_total{result=\"code_needed\"} 3",
        "croft_logins_total{result=\"wrong_code\"} 3",
        "croft_logins_total{result=\"locked\"} 4",
        "croft_login_lockouts_total 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    eventually("the lock is written down", async || {
        let kept = admin.get(&format!("{SECRETS}/login-lockouts")).await.expect("an answer");
        if kept.status == 200 { Ok(()) } else { Err(kept.status) }
    })
    .await;
    assert_eq!(croft(&server, &["user", "unlock", "admin"]).await, "admin can log in again\n");
    token(&log_in(&anybody, PASSWORD, Some(&recovery[0])).await);
}

/// The picture, as a camera sees it.
fn picture(lines: &[String], file: &Path) {
    const SCALE: usize = 4;
    let mut rows: Vec<Vec<u8>> = Vec::new();
    for line in lines {
        let half = |dark: [char; 2]| line.chars().map(move |c| if dark.contains(&c) { 0 } else { 255 });
        for row in [half(['█', '▀']).collect::<Vec<u8>>(), half(['█', '▄']).collect()] {
            let wide: Vec<u8> = row.iter().flat_map(|square| [*square; SCALE]).collect();
            rows.extend(std::iter::repeat_n(wide, SCALE));
        }
    }
    let mut image = format!("P5 {} {} 255\n", rows[0].len(), rows.len()).into_bytes();
    image.extend(rows.concat());
    std::fs::write(file, image).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_enrols_by_a_picture_and_logs_in_with_a_code() {
    let World { server, dir } = start(&[]).await;
    let password = dir.path().join("password").display().to_string();
    assert_eq!(croft(&server, &["user", "totp", "status"]).await, "admin has no second factor\n");
    let mut enable = command(&server);
    enable.args(["user", "totp", "enable", "--password-file", &password]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut enable = enable.spawn().expect("croft runs");
    let mut lines = BufReader::new(enable.stdout.take().expect("its output")).lines();
    let mut drawn = Vec::new();
    let secret = loop {
        let line = lines.next_line().await.expect("a line").expect("more of it");
        if let Some((_, secret)) = line.split_once("type in the key ") {
            break secret.to_owned();
        }
        drawn.push(line);
    };
    drawn.retain(|line| !line.is_empty());
    let file = dir.path().join("qr.pgm");
    picture(&drawn, &file);
    let seen = Command::new("zbarimg").args(["--quiet", "--raw"]).arg(&file).output().await.expect("zbarimg");
    let seen = String::from_utf8(seen.stdout).expect("text");
    let expected =
        format!("otpauth://totp/Croft:admin%40127.0.0.1?secret={secret}&issuer=Croft&algorithm=SHA1&digits=6");
    assert!(seen.starts_with(&expected), "{seen}");
    let mut stdin = enable.stdin.take().expect("its input");
    stdin.write_all(format!("{}\n", code(&secret, 0).await).as_bytes()).await.expect("written");
    let mut recovery = Vec::new();
    while let Some(line) = lines.next_line().await.expect("a line") {
        recovery.extend(line.strip_prefix("  ").map(str::to_owned));
    }
    assert!(enable.wait().await.expect("it ends").success());
    assert_eq!(recovery.len(), 10, "{recovery:?}");
    assert_eq!(
        croft(&server, &["user", "totp", "status", "admin"]).await,
        "admin has a second factor, and 10 recovery codes left\n"
    );
    let users = croft(&server, &["user", "list"]).await;
    assert!(users.lines().any(|line| line.starts_with("admin ") && line.ends_with("yes")), "{users}");

    // kubectl asks croft, which asks the server, which asks for a code.
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, croft(&server, &["kubeconfig", "--login", "--user", "admin"]).await).expect("written");
    let mut kubectl = Kubectl::new(&kubeconfig).expect("kubectl");
    let program = croft_testkit::binary().expect("the program");
    let bin = program.parent().expect("a directory").display();
    kubectl.env("PATH", &format!("{bin}:{}", std::env::var("PATH").unwrap_or_default()));
    kubectl.env("CROFT_CREDENTIAL_CACHE", &dir.path().join("cache").display().to_string());
    kubectl.env("CROFT_PASSWORD_FILE", &password);
    let refused = kubectl.fails(&["get", "namespaces"], "").await;
    assert!(refused.stderr.contains("admin has a second factor, and there is no terminal"), "{}", refused.stderr);
    kubectl.env("CROFT_TOTP", "000 00");
    let refused = kubectl.fails(&["get", "namespaces"], "").await;
    assert!(refused.stderr.contains("does not let admin in: the code is wrong, too old"), "{}", refused.stderr);
    kubectl.env("CROFT_TOTP", &code(&secret, 1).await);
    kubectl.ok(&["get", "namespaces"]).await;
    let mut disable = command(&server);
    let out = disable.args(["user", "totp", "disable", "--totp", &recovery[0]]).output().await.expect("croft runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "admin logs in with the password alone again\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_takes_off_what_a_user_has_lost() {
    let World { server, dir } = start(&[]).await;
    let (admin, anybody) = (server.client().expect("a client"), server.anonymous().expect("a client"));
    let hash = admin.get(&format!("{SECRETS}/user-admin")).await.expect("an answer").ok().expect("the admin");
    let jane = json!({"metadata": {"name": "user-jane"}, "type": "croft.io/user", "data": {
        "username": BASE64_STANDARD.encode("jane"), "password-hash": hash["data"]["password-hash"],
    }});
    admin.post(SECRETS, &jane).await.expect("an answer").ok().expect("jane is there");
    let log_in = async |code: Option<&str>| {
        let body = json!({"username": "jane", "password": PASSWORD, "totp": code.unwrap_or_default()});
        anybody.post(LOGIN, &body).await.expect("an answer")
    };
    let session = token(&log_in(None).await);
    enrol(&anybody, &session).await;
    assert_eq!(outcome(&log_in(None).await), "401 TotpRequired");

    // Whoever may write Secrets, but is no administrator, does not get at it.
    let text = croft(&server, &["kubeconfig", "--user", "eve", "--group", "editors"]).await;
    let eve = dir.path().join("eve");
    std::fs::write(&eve, text).expect("written");
    let kubectl = server.kubectl().expect("kubectl");
    kubectl.ok(&["create", "clusterrolebinding", "editors", "--clusterrole=cluster-admin", "--group=editors"]).await;
    let reset = ["user", "totp", "reset", "jane"];
    let out = command(&server).args(reset).env("KUBECONFIG", &eve).output().await.expect("croft runs");
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && complaint.contains("only members of system:masters"), "{complaint}");
    assert_eq!(outcome(&log_in(None).await), "401 TotpRequired");

    assert_eq!(croft(&server, &reset).await, "jane logs in with the password alone again\n");
    assert_eq!(log_in(None).await.status, 201);
    assert_eq!(croft(&server, &reset).await, "jane has no second factor\n");
    let out = command(&server).args(["user", "totp", "reset", "nobody"]).output().await.expect("croft runs");
    assert!(String::from_utf8_lossy(&out.stderr).contains("there is no local user nobody"));
}

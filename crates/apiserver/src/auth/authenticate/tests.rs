use http::HeaderValue;
use jiff::SignedDuration;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::*;
use crate::auth::testing::{Keys, TestCache, object as stored};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
}

fn bearer(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

fn basic(user: &str, password: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))])
}

pub(super) fn secret(name: &str, secret_type: &str, data: &[(&str, &str)]) -> Value {
    let mut secret = stored("Secret", USERS_NAMESPACE, name, &format!("uid-{name}"));
    secret["type"] = json!(secret_type);
    for (key, value) in data {
        secret["data"][*key] = json!(BASE64_STANDARD.encode(value));
    }
    secret
}

pub(super) fn user(name: &str, password: &str) -> Value {
    let hash = croft_pki::password::hash(password).unwrap();
    let data = [("username", name), ("password-hash", &hash), ("groups", "staff, admins")];
    secret(&format!("user-{name}"), "croft.io/user", &data)
}

fn token_secret(token: &BearerToken, expires: &str) -> Value {
    let data = [("id", token.id()), ("hash", &token.hash()), ("user", "ann"), ("groups", "dev,"), ("expires", expires)];
    secret(&format!("token-{}", token.id()), "croft.io/token", &data)
}

fn certificate(keys: &Keys, user: &str, groups: &[&str], since: Timestamp) -> Vec<CertificateDer<'static>> {
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let issued = keys.ca.issue_client(user, &groups, Duration::from_hours(1), since).unwrap();
    vec![CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap()]
}

#[tokio::test]
async fn no_credentials_are_anonymous() {
    let (keys, cache) = (Keys::new(), TestCache::new([]).await);
    let authenticator = keys.authenticator(&cache);
    let table: [&[(&'static str, &str)]; 6] = [
        &[],
        &[("authorization", "")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Bearer  spaced")],
        &[("authorization", "Negotiate abc")],
        // Only a WebSocket request carries its token there.
        &[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YmFk")],
    ];
    for pairs in table {
        assert_eq!(
            authenticator.authenticate(&headers(pairs), None, None).await,
            Ok(UserInfo::anonymous()),
            "{pairs:?}"
        );
    }
    assert_eq!(authenticator.authenticate(&headers(&[]), Some(&[]), None).await, Ok(UserInfo::anonymous()));
}

#[tokio::test]
async fn wrong_credentials_are_refused() {
    let (keys, cache) = (Keys::new(), TestCache::new([]).await);
    let authenticator = keys.authenticator(&cache);
    let websocket = |protocol| {
        headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", protocol),
        ])
    };
    let table = [
        bearer("bad"),
        bearer("a.b.c"),
        bearer("\u{e9}"),
        bearer(BearerToken::generate().unwrap().reveal().reveal()),
        headers(&[("authorization", "Basic ???")]),
        headers(&[("authorization", "Basic bm9jb2xvbg==")]),
        basic("nobody", "x"),
        websocket("base64url.bearer.authorization.k8s.io.YmFk, v4.channel.k8s.io"),
        websocket("base64url.bearer.authorization.k8s.io.YmFk"),
        websocket("base64url.bearer.authorization.k8s.io.???, x"),
    ];
    for headers in table {
        assert_eq!(
            authenticator.authenticate(&headers, None, None).await,
            Err(ApiError::unauthorized()),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn certificates_of_our_authority_identify() {
    let (keys, other, cache) = (Keys::new(), Keys::new(), TestCache::new([]).await);
    let authenticator = keys.authenticator(&cache);
    let now = Timestamp::now();
    let good = certificate(&keys, "ann", &["dev", "system:masters"], now);
    for _ in 0..2 {
        let user = authenticator.authenticate(&headers(&[]), Some(&good), None).await.unwrap();
        assert_eq!(
            (user.name.as_str(), &user.groups[..]),
            ("ann", &["dev", "system:masters", AUTHENTICATED].map(str::to_owned)[..])
        );
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
    }
    let expired = certificate(&keys, "ann", &[], now - SignedDuration::from_hours(2));
    let foreign = certificate(&other, "ann", &["system:masters"], now);
    let garbage = vec![CertificateDer::from(vec![1, 2, 3])];
    for chain in [expired, foreign.clone(), garbage] {
        assert_eq!(authenticator.authenticate(&headers(&[]), Some(&chain), None).await, Err(ApiError::unauthorized()));
    }
    // A right token makes up for a wrong certificate.
    let token = BearerToken::generate().unwrap();
    cache.put(&token_secret(&token, "")).await;
    let user = authenticator.authenticate(&bearer(token.reveal().reveal()), Some(&foreign), None).await.unwrap();
    assert_eq!(user.name, "ann");
}

#[tokio::test]
async fn opaque_tokens_identify_until_they_expire_or_go() {
    let [lasting, expired, garbled, retyped, nameless] = std::array::from_fn(|_| BearerToken::generate().unwrap());
    let mut wrong_type = token_secret(&retyped, "");
    wrong_type["type"] = json!("Opaque");
    let mut no_user = token_secret(&nameless, "");
    no_user["data"]["user"] = json!("");
    let cache = TestCache::new([
        token_secret(&lasting, "2999-01-01T00:00:00Z"),
        token_secret(&expired, "2001-01-01T00:00:00Z"),
        token_secret(&garbled, "tomorrow"),
        wrong_type,
        no_user,
    ])
    .await;
    let authenticator = Keys::new().authenticator(&cache);
    let user = authenticator.authenticate(&bearer(lasting.reveal().reveal()), None, None).await.unwrap();
    let mut expected = UserInfo::new("ann", &["dev", AUTHENTICATED]);
    expected.extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("token-{}", lasting.id())]);
    assert_eq!(user, expected);

    let websocket =
        format!("v4.channel.k8s.io,{WEBSOCKET_BEARER}{}", BASE64_URL_SAFE_NO_PAD.encode(lasting.reveal().reveal()));
    let websocket =
        headers(&[("connection", "upgrade"), ("upgrade", "WebSocket"), ("sec-websocket-protocol", &websocket)]);
    assert_eq!(authenticator.authenticate(&websocket, None, None).await.unwrap().name, "ann");

    // The id is public; it is the secret that counts.
    let other = BearerToken::generate().unwrap().reveal().reveal().split_once(':').unwrap().1.to_owned();
    let forged = format!("croft-{}:{other}", lasting.id());
    let refused = [expired, garbled, retyped, nameless].map(|token| token.reveal().reveal().to_owned());
    for token in refused.into_iter().chain([forged]) {
        assert_eq!(
            authenticator.authenticate(&bearer(&token), None, None).await,
            Err(ApiError::unauthorized()),
            "{token}"
        );
    }
    cache.delete(&format!("core/secrets/kube-system/token-{}", lasting.id())).await;
    assert!(authenticator.authenticate(&bearer(lasting.reveal().reveal()), None, None).await.is_err());
}

#[tokio::test]
async fn service_account_tokens_need_their_account() {
    let (keys, other) = (Keys::new(), Keys::new());
    let cache = TestCache::new([stored("ServiceAccount", "ns", "sa", "uid-1")]).await;
    let authenticator = keys.authenticator(&cache);
    let mint = |keys: &Keys, since: Timestamp| {
        let answer = keys.tokens(&cache).request(json!({}), "ns", "sa", since).unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    let now = Timestamp::now();
    let good = mint(&keys, now);
    assert_eq!(authenticator.authenticate(&bearer(&good), None, None).await.unwrap().uid, "uid-1");
    let refused = [
        mint(&other, now),
        mint(&keys, now - SignedDuration::from_hours(2)),
        mint(&keys, now + SignedDuration::from_hours(1)),
    ];
    for token in refused {
        assert_eq!(authenticator.authenticate(&bearer(&token), None, None).await, Err(ApiError::unauthorized()));
    }
    // Signatures are remembered for a while, the account is looked up each time.
    let mut leaving = stored("ServiceAccount", "ns", "sa", "uid-1");
    croft_meta::object::set_meta(&mut leaving, "deletionTimestamp", "2001-01-01T00:00:00Z");
    cache.put(&leaving).await;
    assert!(authenticator.identify_token(&good, &[]).unwrap_err().contains("service account ns/sa has been deleted"));
    cache.put(&stored("ServiceAccount", "ns", "sa", "uid-2")).await;
    assert!(
        authenticator.identify_token(&good, &[]).unwrap_err().contains("service account UID (uid-2) does not match")
    );
    cache.delete("core/serviceaccounts/ns/sa").await;
    assert!(authenticator.identify_token(&good, &[]).unwrap_err().contains("serviceaccounts \"sa\" not found"));
}

#[tokio::test]
async fn passwords_identify_and_change_at_once() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let authenticator = Keys::new().authenticator(&cache);
    for _ in 0..2 {
        let found = authenticator.authenticate(&basic("ann", "secret"), None, None).await.unwrap();
        assert_eq!((found.name.as_str(), found.uid.as_str()), ("ann", "uid-user-ann"));
        assert_eq!(found.groups, ["staff", "admins", AUTHENTICATED]);
    }
    for (name, password) in [("ann", "wrong"), ("ann", ""), ("bob", "secret"), ("", "")] {
        assert_eq!(
            authenticator.authenticate(&basic(name, password), None, None).await,
            Err(ApiError::unauthorized()),
            "{name}"
        );
    }
    cache.put(&user("ann", "changed")).await;
    assert!(authenticator.authenticate(&basic("ann", "secret"), None, None).await.is_err());
    assert!(authenticator.authenticate(&basic("ann", "changed"), None, None).await.is_ok());
    let mut retyped = user("ann", "changed");
    retyped["type"] = json!("Opaque");
    cache.put(&retyped).await;
    assert!(authenticator.authenticate(&basic("ann", "changed"), None, None).await.is_err());
}

#[tokio::test]
async fn another_credential_of_the_request_does_not_make_up_for_one_that_has_ended() {
    let keys = Keys::new();
    let token = BearerToken::generate().unwrap();
    let cache = TestCache::new([token_secret(&token, ""), user("ann", "secret")]).await;
    let authenticator = keys.authenticator(&cache);
    let chain = certificate(&keys, "ann", &["system:masters"], Timestamp::now());
    for weaker in [bearer(token.reveal().reveal()), basic("ann", "secret")] {
        let known = authenticator.recognize(&weaker, Some(&chain), None).await.unwrap();
        assert!(authenticator.recognizes(&known, &weaker, Some(&chain)).await);
        let id = known.user.extra[CREDENTIAL_ID][0].strip_prefix("X509SHA256=").unwrap();
        cache.put(&secret("revoked-credentials", "croft.io/revoked", &[(&format!("x509-sha256-{id}"), "")])).await;
        let now = authenticator.recognize(&weaker, Some(&chain), None).await.unwrap();
        assert_eq!(now.user.name, "ann", "a request that comes now is the weaker one's");
        assert!(!authenticator.recognizes(&known, &weaker, Some(&chain)).await);
        cache.put(&secret("revoked-credentials", "croft.io/revoked", &[])).await;
    }
}

#[tokio::test]
async fn a_revoked_certificate_is_not_good_again_with_the_other_form_of_its_signature() {
    let (keys, cache) = (Keys::new(), TestCache::new([]).await);
    let authenticator = keys.authenticator(&cache);
    let one = certificate(&keys, "ann", &[], Timestamp::now());
    let two = vec![CertificateDer::from(croft_pki::twin::of(&one[0]).unwrap())];
    let by =
        async |chain: &[CertificateDer<'static>]| authenticator.authenticate(&headers(&[]), Some(chain), None).await;
    for (revoked, other) in [(&one, &two), (&two, &one)] {
        let id = by(revoked).await.unwrap().extra[CREDENTIAL_ID][0].strip_prefix("X509SHA256=").unwrap().to_owned();
        assert!(by(other).await.is_ok());
        cache.put(&secret("revoked-credentials", "croft.io/revoked", &[(&format!("x509-sha256-{id}"), "")])).await;
        for chain in [revoked, other] {
            assert_eq!(by(chain).await.unwrap_err().code(), 401);
        }
        cache.put(&secret("revoked-credentials", "croft.io/revoked", &[])).await;
    }
}

#[tokio::test]
async fn who_came_by_a_password_stays_until_it_changes_even_while_the_name_is_locked() {
    let cache = TestCache::new([user("ann", "secret")]).await;
    let authenticator = Keys::new().authenticator(&cache);
    let headers = basic("ann", "secret");
    let known = authenticator.recognize(&headers, None, None).await.unwrap();
    let now = Timestamp::now();
    authenticator.lockouts().failed("ann", true, 10, now);
    assert!(authenticator.lockouts().seconds_left("ann", now).is_some());
    let stays = async || authenticator.recognizes(&known, &headers, None).await;
    let stored = cache.collection("core/secrets").get("kube-system/user-ann").unwrap().json();
    let mut changed = stored.clone();
    changed["data"]["groups"] = json!("");
    cache.put(&changed).await;
    assert!(stays().await);
    changed["data"]["totp-secret"] = json!("QUFBQQ==");
    cache.put(&changed).await;
    assert!(!stays().await, "a password alone is not enough any more");
    cache.put(&stored).await;
    assert!(stays().await);
    cache.put(&user("ann", "secret")).await;
    assert!(!stays().await, "the password was set anew");
    cache.put(&stored).await;
    cache.delete("core/secrets/kube-system/user-ann").await;
    assert!(!stays().await);
}

#[tokio::test]
async fn while_what_was_revoked_cannot_be_read_only_what_is_new_is_good() {
    let (keys, cache) = (Keys::new(), TestCache::new([secret("revoked-credentials", "croft.io/revoked", &[])]).await);
    let authenticator = keys.authenticator(&cache);
    let by = async |chain: &[CertificateDer<'static>]| {
        authenticator.authenticate(&headers(&[]), Some(chain), None).await.is_ok()
    };
    let old = certificate(&keys, "ann", &[], Timestamp::now() - SignedDuration::from_mins(1));
    assert!(by(&old).await);
    cache.lose("core/secrets/kube-system/revoked-credentials").await;
    let before = Timestamp::now();
    let now = authenticator.revoked.time_to_issue().await;
    assert!(!by(&old).await);
    assert!(!by(&certificate(&keys, "ann", &[], before)).await, "of the very second");
    assert!(by(&certificate(&keys, "ann", &[], now)).await);
    let (before, now) = (before.as_second(), now.as_second());
    for (id, issued, refused) in [("a", Some(before), true), ("a", None, true), ("a", Some(now), false)] {
        assert_eq!(authenticator.revoked.has_token(id, || issued), refused, "{issued:?}");
    }
    assert!(!authenticator.revoked.has_token("", || None), "without an id it was never in the list");
    cache.delete("core/secrets/kube-system/revoked-credentials").await;
    assert!(by(&old).await);
}

#[tokio::test]
async fn a_token_ends_by_the_write_that_changes_the_password() {
    let (one, two) = (BearerToken::generate().unwrap(), BearerToken::generate().unwrap());
    let mut ann = user("ann", "secret");
    let token = |token: &BearerToken, generation: &[(&str, &str)]| {
        let mut secret = token_secret(token, "");
        for (key, value) in [("account", "uid-user-ann"), ("kind", "session")].iter().chain(generation) {
            secret["data"][*key] = json!(BASE64_STANDARD.encode(value));
        }
        secret
    };
    let cache = TestCache::new([ann.clone(), token(&one, &[]), token(&two, &[])]).await;
    let authenticator = Keys::new().authenticator(&cache);
    let good = |token: &BearerToken| authenticator.identify_token(token.reveal().reveal(), &[]).is_ok();
    assert!(good(&one) && good(&two), "as an earlier release has made them");
    validity::end_tokens(&mut ann, &format!("token-{}", two.id()));
    cache.put(&ann).await;
    assert!(!good(&one) && good(&two), "but for the one that it was changed with");
    cache.put(&token(&one, &[("generation", "1")])).await;
    assert!(good(&one));
}

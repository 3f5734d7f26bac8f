use std::fs;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() + seconds).unwrap()
}

fn reference(name: &str) -> ObjectRef {
    ObjectRef { name: name.to_owned(), uid: format!("uid-of-{name}") }
}

fn request() -> TokenRequest {
    TokenRequest {
        namespace: "apps".to_owned(),
        service_account: reference("builder"),
        audiences: vec![ISSUER.to_owned(), "vault".to_owned()],
        lifetime: Duration::from_hours(1),
        bound_to: None,
        warn_after: None,
    }
}

fn signer() -> (tempfile::TempDir, TokenSigner) {
    let dir = tempfile::tempdir().unwrap();
    let signer = TokenSigner::load_or_create(dir.path()).unwrap();
    (dir, signer)
}

fn payload(token: &Secret) -> Value {
    decode(token.reveal().split('.').nth(1).unwrap())
}

fn decode(part: &str) -> Value {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

fn encode(part: &Value) -> String {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    BASE64_URL_SAFE_NO_PAD.encode(part.to_string())
}

#[test]
fn bound_token_says_what_kubernetes_says() {
    let (_dir, signer) = signer();
    let bound_to = Some(BoundObject::Pod { pod: reference("web-0"), node: Some(reference("node-1")) });
    let request = TokenRequest { bound_to, warn_after: Some(Duration::from_mins(50)), ..request() };
    let (token, expires) = signer.mint(&request, "some-id", now()).unwrap();
    let start = now().as_second();
    assert_eq!(expires, later(3600));
    assert_eq!(
        payload(&token),
        json!({
            "aud": [ISSUER, "vault"], "exp": start + 3600, "iat": start, "nbf": start, "iss": ISSUER, "jti": "some-id",
            "sub": "system:serviceaccount:apps:builder",
            "kubernetes.io": {
                "namespace": "apps",
                "serviceaccount": { "name": "builder", "uid": "uid-of-builder" },
                "pod": { "name": "web-0", "uid": "uid-of-web-0" },
                "node": { "name": "node-1", "uid": "uid-of-node-1" },
                "warnafter": start + 3000,
            },
        })
    );
    let header = decode(token.reveal().split('.').next().unwrap());
    assert_eq!(header, json!({ "alg": "ES256", "kid": signer.jwks()["keys"][0]["kid"] }));

    let verified = signer.verify(token.reveal(), &[], now()).unwrap();
    assert_eq!(verified.user(), "system:serviceaccount:apps:builder");
    assert_eq!(verified.service_account, reference("builder"));
    assert_eq!((verified.pod, verified.node), (Some(reference("web-0")), Some(reference("node-1"))));
    assert_eq!(verified.audiences, [ISSUER]);
    assert!(!verified.legacy);
}

#[test]
fn times_have_a_minute_of_leeway() {
    let (_dir, signer) = signer();
    let (token, _) = signer.mint(&request(), "id", now()).unwrap();
    for (at, expected) in [
        (-61, Err(TokenError::NotYetValid)),
        (-60, Ok(())),
        (0, Ok(())),
        (3660, Ok(())),
        (3661, Err(TokenError::Expired)),
    ] {
        assert_eq!(signer.verify(token.reveal(), &[], later(at)).map(|_| ()), expected, "{at}");
    }
}

#[test]
fn audience_must_be_shared() {
    let (_dir, signer) = signer();
    let (token, _) = signer.mint(&request(), "id", now()).unwrap();
    let verify = |audience: &str| signer.verify(token.reveal(), &[audience.to_owned()], now());
    assert_eq!(verify("vault").unwrap().audiences, ["vault"]);
    let err = verify("other").unwrap_err();
    assert_eq!(
        err.to_string(),
        r#"token audiences ["https://kubernetes.default.svc", "vault"] is invalid for the target audiences ["other"]"#
    );
}

#[test]
fn legacy_token_has_no_end_and_belongs_to_its_secret() {
    let (_dir, signer) = signer();
    let token = signer.mint_legacy("apps", &reference("builder"), "builder-token").unwrap();
    assert_eq!(
        payload(&token),
        json!({
            "iss": "kubernetes/serviceaccount",
            "kubernetes.io/serviceaccount/namespace": "apps",
            "kubernetes.io/serviceaccount/secret.name": "builder-token",
            "kubernetes.io/serviceaccount/service-account.name": "builder",
            "kubernetes.io/serviceaccount/service-account.uid": "uid-of-builder",
            "sub": "system:serviceaccount:apps:builder",
        })
    );
    let verified = signer.verify(token.reveal(), &[], later(10_000_000)).unwrap();
    assert!(verified.legacy);
    assert_eq!(verified.secret.unwrap().name, "builder-token");

    let broken = LegacyClaims { uid: String::new(), ..LegacyClaims::new("apps", &reference("builder"), "s") };
    let token = signer.sign(&broken).unwrap();
    assert_eq!(signer.verify(token.reveal(), &[], now()), Err(TokenError::MissingClaim("serviceAccountUID")));
    let broken = LegacyClaims { name: "admin".to_owned(), ..LegacyClaims::new("apps", &reference("builder"), "s") };
    let token = signer.sign(&broken).unwrap();
    assert_eq!(signer.verify(token.reveal(), &[], now()), Err(TokenError::InvalidSubject));
}

#[test]
fn forged_tokens_are_refused() {
    let (_dir, signer) = signer();
    let (_other_dir, other) = self::signer();
    let (token, _) = signer.mint(&request(), "id", now()).unwrap();
    let (foreign, _) = other.mint(&request(), "id", now()).unwrap();
    let parts: Vec<&str> = token.reveal().split('.').collect();
    let kid = signer.jwks()["keys"][0]["kid"].clone();

    let mut claims = payload(&token);
    claims["kubernetes.io"]["serviceaccount"]["name"] = json!("admin");
    let tampered = format!("{}.{}.{}", parts[0], encode(&claims), parts[2]);
    let none = format!("{}.{}.", encode(&json!({ "alg": "none", "kid": kid })), parts[1]);
    let no_signature = format!("{}.{}.", parts[0], parts[1]);
    // Signed with the public key as a shared secret: the classic confusion of algorithms.
    let secret = jsonwebtoken::EncodingKey::from_secret(signer.verifying[0].pem().as_bytes());
    let mut header = Header::new(Algorithm::HS256);
    header.kid = kid.as_str().map(str::to_owned);
    let confused = jsonwebtoken::encode(&header, &payload(&token), &secret).unwrap();

    for (name, token, expected) in [
        ("tampered", tampered.as_str(), TokenError::BadSignature),
        ("another key", foreign.reveal(), TokenError::UnknownKey),
        ("algorithm none", &none, TokenError::NotOurs),
        ("no signature", &no_signature, TokenError::BadSignature),
        ("wrong algorithm", &confused, TokenError::BadSignature),
        ("empty", "", TokenError::NotOurs),
        ("dots", "..", TokenError::NotOurs),
        ("not base64", "a.!!!.c", TokenError::NotOurs),
        ("not json", "e30.bm90anNvbg.x", TokenError::NotOurs),
        ("too many parts", &format!("{}.x", token.reveal()), TokenError::NotOurs),
        (
            "other issuer",
            &format!("e30.{}.x", encode(&json!({ "iss": "https://accounts.example" }))),
            TokenError::NotOurs,
        ),
    ] {
        assert_eq!(signer.verify(token, &[], now()), Err(expected), "{name}");
    }
}

#[test]
fn tokens_outlive_a_restart_and_a_rotation() {
    let (dir, signer) = signer();
    let (old, _) = signer.mint(&request(), "id", now()).unwrap();
    let signer = TokenSigner::load_or_create(dir.path()).unwrap();
    signer.verify(old.reveal(), &[], now()).unwrap();

    let signer = signer.rotate(dir.path()).unwrap().rotate(dir.path()).unwrap();
    let (new, _) = signer.mint(&request(), "id", now()).unwrap();
    for signer in [signer, TokenSigner::load_or_create(dir.path()).unwrap()] {
        signer.verify(old.reveal(), &[], now()).unwrap();
        signer.verify(new.reveal(), &[], now()).unwrap();
        assert_eq!(signer.jwks()["keys"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn discovery_points_at_the_keys() {
    let (_dir, signer) = signer();
    let document = signer.discovery("https://192.0.2.1:6443/");
    assert_eq!(document["jwks_uri"], "https://192.0.2.1:6443/openid/v1/jwks");
    assert_eq!(document["id_token_signing_alg_values_supported"], json!(["ES256"]));
    let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(signer.jwks()["keys"][0].clone()).unwrap();
    let (token, _) = signer.mint(&request(), "id", now()).unwrap();
    let key = jsonwebtoken::DecodingKey::from_jwk(&jwk).unwrap();
    let mut validation = jsonwebtoken::Validation::new(Algorithm::ES256);
    validation.validate_aud = false;
    validation.validate_exp = false;
    jsonwebtoken::decode::<Value>(token.reveal(), &key, &validation).unwrap();
}

#[test]
fn damaged_keys_are_named() {
    for (file, contents) in [
        ("sa.key", "nonsense"),
        ("sa.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        ("sa-retired.pub", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
    ] {
        let (dir, _signer) = signer();
        fs::write(dir.path().join(file), contents).unwrap();
        let err = TokenSigner::load_or_create(dir.path()).unwrap_err().to_string();
        assert!(err.contains(file) && err.contains("is damaged"), "{err}");
    }
}

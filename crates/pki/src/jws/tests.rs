use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding,
};
use serde_json::json;

use super::*;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn signed_part(algorithm: &str, kid: &str) -> String {
    let header = json!({"alg": algorithm, "kid": kid}).to_string();
    format!("{}.{}", encode(header), encode(r#"{"iss":"https://a","sub":"ann"}"#))
}

fn ec(algorithm: &'static EcdsaSigningAlgorithm, name: &str, curve: &str) -> (Value, String) {
    let pair = EcdsaKeyPair::generate(algorithm).unwrap();
    let point = &pair.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    let jwk = json!({"kty": "EC", "kid": "k", "crv": curve, "x": encode(x), "y": encode(y)});
    let signed = signed_part(name, "k");
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    (jwk, format!("{signed}.{}", encode(signature)))
}

fn rsa(encodings: &[(&'static dyn RsaEncoding, &str)]) -> (Value, Vec<String>) {
    let pair = sig::RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let key = pair.public_key();
    let (n, e) = (key.modulus().big_endian_without_leading_zero(), key.exponent().big_endian_without_leading_zero());
    // Some issuers pad the modulus.
    let jwk = json!({"kty": "RSA", "kid": "k", "use": "sig", "n": encode([&[0], n].concat()), "e": encode(e)});
    let sign = |(encoding, name): &(&'static dyn RsaEncoding, &str)| {
        let signed = signed_part(name, "k");
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(*encoding, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", encode(signature))
    };
    (jwk, encodings.iter().map(sign).collect())
}

fn verified(keys: &[&Value], token: &str) -> Result<(), JwsError> {
    let set = KeySet::parse(json!({"keys": keys}).to_string().as_bytes())?;
    let token = Jws::parse(token)?;
    let algorithm = SigningAlgorithm::parse(&token.algorithm).ok_or(JwsError::Malformed("unknown algorithm"))?;
    set.verify(&token, algorithm)
}

#[test]
fn every_algorithm_is_verified_with_its_own_kind_of_key() {
    let mut signed = vec![
        ec(&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256", "P-256"),
        ec(&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384", "P-384"),
        ec(&ECDSA_P521_SHA512_FIXED_SIGNING, "ES512", "P-521"),
    ];
    let ed = Ed25519KeyPair::generate().unwrap();
    let part = signed_part("EdDSA", "k");
    let token = format!("{part}.{}", encode(ed.sign(part.as_bytes())));
    signed.push((json!({"kty": "OKP", "kid": "k", "crv": "Ed25519", "x": encode(ed.public_key())}), token));
    let (key, tokens) = rsa(&[
        (&sig::RSA_PKCS1_SHA256, "RS256"),
        (&sig::RSA_PKCS1_SHA384, "RS384"),
        (&sig::RSA_PKCS1_SHA512, "RS512"),
        (&sig::RSA_PSS_SHA256, "PS256"),
        (&sig::RSA_PSS_SHA384, "PS384"),
        (&sig::RSA_PSS_SHA512, "PS512"),
    ]);
    signed.extend(tokens.into_iter().map(|token| (key.clone(), token)));
    assert_eq!(signed.len(), SigningAlgorithm::ALL.len());
    for (at, (own, token)) in signed.iter().enumerate() {
        assert_eq!(verified(&[own], token), Ok(()), "{at}");
        let others: Vec<&Value> = signed.iter().map(|(key, _)| key).filter(|key| *key != own).collect();
        assert_eq!(verified(&others, token), Err(JwsError::Signature), "{at}");
        let (rest, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = rest.split_once('.').unwrap();
        let forged = format!("{header}.{}.{signature}", encode(r#"{"iss":"https://a","sub":"eve"}"#));
        assert_eq!(verified(&[own], &forged), Err(JwsError::Signature), "{at}");
    }
}

#[test]
fn a_key_is_only_used_for_what_it_says_it_is_for() {
    let (key, token) = ec(&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256", "P-256");
    let with = |field: &str, value: &str| {
        let mut key = key.clone();
        key[field] = json!(value);
        key
    };
    assert_eq!(verified(&[&with("alg", "ES256")], &token), Ok(()));
    assert_eq!(verified(&[&with("alg", "ES384")], &token), Err(JwsError::Signature));
    assert_eq!(verified(&[&with("kid", "other")], &token), Err(JwsError::Signature));
    for (field, value) in [("use", "enc"), ("kty", "oct"), ("alg", "HS256"), ("crv", "secp256k1"), ("x", "AAAA")] {
        assert_eq!(verified(&[&with(field, value)], &token), Err(JwsError::Signature), "{field}");
    }
    assert_eq!(KeySet::parse(b"{}").unwrap_err(), JwsError::NoKeySet);
    assert!(KeySet::parse(b"{\"keys\":[]}").unwrap().is_empty(), "an issuer may withdraw all it had");
    assert!(KeySet::parse(json!({"keys": [with("use", "enc")]}).to_string().as_bytes()).unwrap().is_empty());
}

#[test]
fn any_id_of_a_token_has_a_key_in_a_secret() {
    assert_eq!(revocation_key("0a1b-_.Z"), "jti-0a1b-_.Z");
    for id in ["onrtac:0a1b", "a/b", "ä", &"x".repeat(201)] {
        let key = revocation_key(id);
        assert!(key.len() == 75 && key.strip_prefix("jti-sha256-").is_some_and(|hex| hex.len() == 64), "{key}");
    }
    assert_ne!(revocation_key("a:b"), revocation_key("a:c"));
}

#[test]
fn what_is_no_token_is_refused() {
    let body = encode("{}");
    for (token, expected) in [
        (String::new(), "three parts"),
        ("a.b".to_owned(), "three parts"),
        (format!("!.{body}."), "header is no base64"),
        (format!("{}.{body}.", encode("[]")), "header is no header"),
        (format!("{}.{body}.", encode(r#"{"alg":"RS256","crit":["b64"]}"#)), "critical"),
        (format!("{}.{}.", encode(r#"{"alg":"RS256"}"#), encode("[]")), "payload is no object"),
        (format!("{}.{body}.a.b", encode(r#"{"alg":"RS256"}"#)), "payload is no base64"),
        ("a".repeat(MOST_BYTES + 1), "too long"),
    ] {
        let error = Jws::parse(&token).unwrap_err().to_string();
        assert!(error.contains(expected), "{token}: {error}");
    }
    // A token can say what it likes: these are not algorithms here.
    for name in ["none", "None", "HS256", "HS512", "", "rs256"] {
        assert_eq!(SigningAlgorithm::parse(name), None, "{name}");
    }
    let parsed = Jws::parse(&format!("{}.{body}.", encode(r#"{"alg":"none"}"#))).map(|token| token.algorithm);
    assert_eq!(parsed, Ok("none".to_owned()));
}

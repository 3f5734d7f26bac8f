//! For `croft-fuzz`: who somebody is by the claims of a token, in both ways to say it.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::config::AuthenticationConfig;
use super::{check_audience, check_times, config_file, issuer_of};

static TRUSTED: LazyLock<AuthenticationConfig> = LazyLock::new(|| {
    let claims = json!({
        "issuer": {"url": "https://a.example", "audiences": ["croft"]},
        "claimValidationRules": [{"claim": "hd", "requiredValue": "a.example"}],
        "claimMappings": {"username": {"claim": "email", "prefix": ""}, "groups": {"claim": "groups", "prefix": ""},
            "uid": {"claim": "sub"}},
    });
    let expressions = json!({
        "issuer": {"url": "https://b.example", "audiences": ["croft"]},
        "claimValidationRules": [{"expression": "!has(claims.hd) || claims.hd == 'a.example'"}],
        "claimMappings": {"username": {"expression": "claims.sub"}, "groups": {"expression": "claims.groups"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}]},
        "userValidationRules": [{"expression": "user.username != 'root'"}],
    });
    config_file::document(&json!({"jwt": [claims, expressions]})).unwrap_or_else(|error| panic!("{error}"))
});

/// The names and groups that these claims are good for. The same claims make the same user, and none of the server's own.
pub(crate) fn users(claims: &Map<String, Value>) -> Vec<(String, Vec<String>)> {
    let _ = (issuer_of(claims), check_audience(claims, &["croft".to_owned()]));
    let _ = check_times(claims, Timestamp::UNIX_EPOCH);
    let mut found = Vec::new();
    for issuer in &TRUSTED.issuers {
        let user = issuer.user(claims);
        assert_eq!(user, issuer.user(claims));
        let Ok(user) = user else { continue };
        let is_own = |name: &String| name.starts_with("system:");
        assert!(!user.name.is_empty() && !is_own(&user.name) && !user.groups.iter().any(is_own), "{user:?}");
        found.push((user.name, user.groups));
    }
    found
}

use serde_json::json;

use super::super::config_file::document;
use super::*;

/// Who a token with these claims stands for, with these mappings and rules.
fn user(jwt: Value, claims: Value) -> Result<UserInfo, String> {
    let mut jwt = jwt;
    jwt["issuer"] = json!({"url": "https://a", "audiences": ["croft"]});
    let config = document(&json!({"jwt": [jwt]})).unwrap_or_else(|error| panic!("{error}"));
    let Value::Object(claims) = claims else { panic!("claims are an object") };
    config.issuers[0].user(&claims)
}

fn by_sub(more: &Value) -> Value {
    let mut jwt = json!({"claimMappings": {"username": {"claim": "sub", "prefix": "a:"}}});
    for (name, value) in more.as_object().into_iter().flatten() {
        jwt["claimMappings"][name] = value.clone();
    }
    jwt
}

#[test]
fn claims_become_a_user() {
    let mappings = json!({
        "groups": {"claim": "groups", "prefix": "g:"},
        "uid": {"claim": "oid"},
        "extra": [
            {"key": "example.org/team", "valueExpression": "claims.team"},
            {"key": "example.org/teams", "valueExpression": "claims.teams"},
            {"key": "example.org/none", "valueExpression": "''"},
        ],
    });
    let claims = json!({"sub": "ann", "groups": ["x", "y"], "oid": "u1", "jti": "t1", "team": "red",
        "teams": ["red", "", "blue"]});
    let found = user(by_sub(&mappings), claims).unwrap();
    assert_eq!((found.name.as_str(), found.uid.as_str()), ("a:ann", "u1"));
    assert_eq!(found.groups, ["g:x", "g:y"]);
    let extra = json!({"example.org/team": ["red"], "example.org/teams": ["red", "blue"],
        "authentication.kubernetes.io/credential-id": ["JTI=t1"]});
    assert_eq!(json!(found.extra), extra);

    let groups = |value: Value| {
        let claims = json!({"sub": "ann", "groups": value});
        user(by_sub(&json!({"groups": {"claim": "groups", "prefix": ""}})), claims).map(|user| user.groups)
    };
    assert_eq!(groups(json!("one")), Ok(vec!["one".to_owned()]));
    assert_eq!(groups(Value::Null), Ok(Vec::new()));
    assert!(groups(json!([1])).unwrap_err().contains("neither a string nor a list of strings"));
}

#[test]
fn expressions_say_who_somebody_is() {
    let jwt = json!({"claimMappings": {
        "username": {"expression": "claims.email_verified ? 'mail:' + claims.email : claims.sub"},
        "groups": {"expression": "claims.roles.split(',').map(r, 'role:' + r)"},
        "uid": {"expression": "string(claims.n)"},
    }});
    let claims = json!({"sub": "s", "email": "a@b.c", "email_verified": true, "roles": "x,y", "n": 7});
    let found = user(jwt.clone(), claims).unwrap();
    assert_eq!((found.name.as_str(), found.uid.as_str()), ("mail:a@b.c", "7"));
    assert_eq!(found.groups, ["role:x", "role:y"]);
    let error = user(jwt, json!({"sub": "s"})).unwrap_err();
    let expected = "oidc: error evaluating username claim expression: expression 'claims.email_verified ? ";
    assert!(error.starts_with(expected) && error.ends_with("no such key: email_verified"), "{error}");
    let of =
        |expression: &str| user(json!({"claimMappings": {"username": {"expression": expression}}}), json!({"a": 1}));
    assert!(of("1").unwrap_err().ends_with("username claim expression must return a string"));
    assert_eq!(of("''").unwrap_err(), "oidc: empty username via CEL expression is not allowed");
    let groups = by_sub(&json!({"groups": {"expression": "[1]"}}));
    let error = user(groups, json!({"sub": "s"})).unwrap_err();
    assert!(error.ends_with("expression must return a string or a list of strings"), "{error}");
}

#[test]
fn tokens_that_break_a_rule_are_refused() {
    let rules = |field: &str, rules: Value, claims: Value| {
        let mut jwt = by_sub(&json!({"groups": {"claim": "groups", "prefix": ""}}));
        jwt[field] = rules;
        user(jwt, claims).map(|user| user.name)
    };
    let required = json!([{"claim": "hd", "requiredValue": "example.org"}]);
    let claim = |claims| rules("claimValidationRules", required.clone(), claims);
    assert_eq!(claim(json!({"sub": "s", "hd": "example.org"})), Ok("a:s".to_owned()));
    assert_eq!(claim(json!({"sub": "s"})).unwrap_err(), "oidc: required claim hd not present in ID token");
    assert_eq!(
        claim(json!({"sub": "s", "hd": "other"})).unwrap_err(),
        "oidc: required claim hd value does not match. Got = other, want = example.org"
    );
    assert!(claim(json!({"sub": "s", "hd": ["example.org"]})).unwrap_err().contains("parse claim hd"));
    let long = json!([{"expression": "claims.exp - claims.nbf <= 86400", "message": "a day at most"}]);
    let lasting =
        |seconds: i64| rules("claimValidationRules", long.clone(), json!({"sub": "s", "nbf": 5, "exp": 5 + seconds}));
    assert!(lasting(86_400).is_ok());
    assert_eq!(
        lasting(86_401).unwrap_err(),
        "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 86400' \
         failed: a day at most"
    );
    let number = json!([{"expression": "claims.n"}]);
    let error = rules("claimValidationRules", number, json!({"sub": "s", "n": 1})).unwrap_err();
    assert!(error.ends_with("validation expression must return a boolean"), "{error}");
    let no_admins = json!([{"expression": "!('admins' in user.groups)", "message": "no admins from there"}]);
    let member = |group: &str| rules("userValidationRules", no_admins.clone(), json!({"sub": "s", "groups": [group]}));
    assert!(member("staff").is_ok());
    assert!(member("admins").unwrap_err().ends_with("failed: no admins from there"));
}

#[test]
fn claims_that_are_missing_or_doubtful_make_nobody() {
    for (claims, expected) in [
        (json!({}), "oidc: parse username claims \"sub\": claim not present"),
        (json!({"sub": 7}), "it is no string"),
        (json!({"sub": ""}), "claim is empty"),
    ] {
        let error = user(by_sub(&Value::Null), claims).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let mail = |claims| user(json!({"claimMappings": {"username": {"claim": "email", "prefix": ""}}}), claims);
    assert_eq!(mail(json!({"email": "a@b"})).unwrap().name, "a@b");
    assert_eq!(mail(json!({"email": "a@b", "email_verified": true})).unwrap().name, "a@b");
    assert_eq!(mail(json!({"email": "a@b", "email_verified": false})).unwrap_err(), "oidc: email not verified");
    assert!(mail(json!({"email": "a@b", "email_verified": "true"})).unwrap_err().contains("'email_verified'"));
    let error = user(by_sub(&json!({"uid": {"claim": "oid"}})), json!({"sub": "s"})).unwrap_err();
    assert_eq!(error, "oidc: parse uid claim \"oid\": claim not present");
}

#[test]
fn groups_that_are_kept_elsewhere_are_refused() {
    let of = |claims| user(by_sub(&json!({"groups": {"claim": "groups", "prefix": ""}})), claims);
    let sources = json!({"src1": {"endpoint": "https://a/groups", "access_token": "x"}});
    let claims = json!({"sub": "s", "_claim_names": {"groups": "src1"}, "_claim_sources": sources});
    let error = of(claims).unwrap_err();
    assert!(error.starts_with("oidc: could not expand distributed claims: they are not supported"), "{error}");
    // Those of other claims are nobody's concern.
    assert!(of(json!({"sub": "s", "_claim_names": {"address": "src1"}})).is_ok());
    assert!(of(json!({"sub": "s", "groups": ["g"], "_claim_names": {"groups": "src1"}})).is_ok());
}

#[test]
fn nobody_becomes_one_of_the_servers_own() {
    let jwt = json!({"claimMappings": {"username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "groups", "prefix": ""}}});
    for claims in [
        json!({"sub": "system:admin"}),
        json!({"sub": "system:serviceaccount:kube-system:default"}),
        json!({"sub": "eve", "groups": ["staff", "system:masters"]}),
    ] {
        let error = user(jwt.clone(), claims).unwrap_err();
        assert!(error.contains("is reserved"), "{error}");
    }
    let by_expression = json!({"claimMappings": {"username": {"expression": "'system:' + claims.sub"}}});
    assert!(user(by_expression, json!({"sub": "admin"})).unwrap_err().contains("is reserved"));
}

#[test]
fn an_expression_that_is_too_much_work_makes_nobody() {
    let jwt = json!({"claimMappings": {
        "username": {"expression": "claims.l.all(a, claims.l.all(b, claims.l.all(c, a + b + c > 0.0))) ? 'x' : 'y'"},
    }});
    let list: Vec<i32> = (1..400).collect();
    let error = user(jwt, json!({"l": list})).unwrap_err();
    assert!(error.contains("cost"), "{error}");
}

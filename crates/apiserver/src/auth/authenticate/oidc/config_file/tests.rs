use super::super::config::Source;
use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

/// An issuer that is right, but for what is said about it.
fn jwt(change: impl FnOnce(&mut Value)) -> Value {
    let mut one = json!({
        "issuer": {"url": "https://a.example", "audiences": ["croft"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": "a:"}},
    });
    change(&mut one);
    one
}

fn read(jwt: &[Value]) -> Result<AuthenticationConfig, AuthenticationConfigError> {
    document(&json!({"jwt": jwt}))
}

#[test]
fn everything_that_can_be_said_is_read() {
    let authority = croft_testkit::Authority::new("issuers").unwrap().cert_pem();
    let whole = json!({
        "issuer": {"url": "https://a.example/x", "discoveryURL": "https://b.example/d", "audiences": ["a", "b"],
            "audienceMatchPolicy": "MatchAny", "certificateAuthority": authority},
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "example.org"},
            {"expression": "claims.email_verified == true", "message": "not verified"},
        ],
        "claimMappings": {
            "username": {"expression": "'a:' + claims.email"},
            "groups": {"claim": "groups", "prefix": ""},
            "uid": {"claim": "sub"},
            "extra": [{"key": "example.org/team", "valueExpression": "claims.team"}],
        },
        "userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "reserved"}],
    });
    for version in VERSIONS {
        let text = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": KIND, "jwt": [whole, jwt(|_| {})],
            "anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]}});
        let config = AuthenticationConfig::parse(&text.to_string()).unwrap();
        let [first, second] = &config.issuers[..] else { panic!("{config:?}") };
        assert_eq!(first.issuer.discovery_url.as_deref(), Some("https://b.example/d"));
        assert_eq!((first.audiences.len(), first.claim_rules.len(), first.user_rules.len()), (2, 1, 1));
        assert_eq!(first.required_claims, [("hd".to_owned(), "example.org".to_owned())]);
        assert!(matches!(&first.username, Source::Expression(_)) && first.extra.len() == 1);
        assert!(matches!(&second.username, Source::Claim { name, prefix } if name == "sub" && prefix == "a:"));
        let anonymous = config.anonymous.unwrap();
        assert!(anonymous.allows("/livez") && !anonymous.allows("/livez/x") && !anonymous.allows("/api"));
    }
    // Nothing to trust is something that can be said: issuers may be added later.
    let config = AuthenticationConfig::parse(&format!("{HEAD}jwt: []\nanonymous: {{enabled: false}}\n")).unwrap();
    assert!(config.issuers.is_empty() && !config.anonymous.unwrap().allows("/livez"));
}

#[test]
fn what_is_no_configuration_is_named() {
    for (text, expected) in [
        ("jwt: [", "it is no YAML"),
        ("hello", "it is no AuthenticationConfiguration"),
        ("apiVersion: v1\nkind: AuthenticationConfiguration", "its apiVersion is \"v1\""),
        ("apiVersion: apiserver.config.k8s.io/v2\nkind: AuthenticationConfiguration", "apiserver.config.k8s.io/v2"),
        ("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration", "AuthorizationConfiguration"),
        (&*format!("{HEAD}jwts: []"), "jwts: Forbidden: there is no such field"),
        (&*format!("{HEAD}jwt: []\njwt: []"), "duplicate"),
        (&*format!("{HEAD}jwt: hello"), "jwt: Invalid value: \"hello\": must be a list"),
        (
            &*format!("{HEAD}anonymous: {{enabled: false, conditions: [{{path: /a}}]}}"),
            "anonymous.conditions: Invalid value: [{\"path\":\"/a\"}]: enabled should be set to true when conditions are \
             defined",
        ),
        (&*format!("{HEAD}anonymous: {{enabled: maybe}}"), "anonymous.enabled: Invalid value: \"maybe\""),
    ] {
        let error = AuthenticationConfig::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn mistakes_about_issuers_are_named_by_their_path() {
    type Change<'a> = &'a dyn Fn(&mut Value);
    let table: [(Change<'_>, &str); 18] = [
        (&|one| one["issuer"]["url"] = json!(""), "jwt[0].issuer.url: Required value"),
        (&|one| one["issuer"]["url"] = json!("http://a"), "Invalid value: \"http://a\": URL scheme must be https"),
        (&|one| one["issuer"]["url"] = json!("https://u:p@a"), "URL must not contain a username or password"),
        (&|one| one["issuer"]["url"] = json!("https://a?b"), "URL must not contain a query"),
        (&|one| one["issuer"]["url"] = json!("https://a#b"), "URL must not contain a fragment"),
        (&|one| one["issuer"]["url"] = json!("::"), "jwt[0].issuer.url: Invalid value: \"::\": parse \"::\": "),
        (
            &|one| one["issuer"]["url"] = json!(ISSUER),
            "URL must not overlap with disallowed issuers: [https://kubernetes.default.svc]",
        ),
        (
            &|one| one["issuer"]["discoveryURL"] = json!("https://a.example/"),
            "jwt[0].issuer.discoveryURL: Invalid value: \"https://a.example/\": discoveryURL must be different from URL",
        ),
        (
            &|one| one["issuer"]["discoveryURL"] = json!("http://b"),
            "discoveryURL: Invalid value: \"http://b\": URL sch",
        ),
        (
            &|one| one["issuer"]["audiences"] = json!([]),
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        (&|one| one["issuer"]["audiences"] = json!([""]), "jwt[0].issuer.audiences[0]: Required value"),
        (&|one| one["issuer"]["audiences"] = json!(["a", "a"]), "audiences[1]: Duplicate value: \"a\""),
        (
            &|one| one["issuer"]["audiences"] = json!(["a", "b"]),
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple",
        ),
        (
            &|one| one["issuer"]["audienceMatchPolicy"] = json!("All"),
            "audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
        (
            &|one| one["issuer"]["certificateAuthority"] = json!("secret"),
            "certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA",
        ),
        (
            &|one| one["issuer"]["egressSelectorType"] = json!("cluster"),
            "egressSelectorType: Invalid value: \"cluster\"",
        ),
        (&|one| one["issuer"]["uri"] = json!("a"), "jwt[0].issuer.uri: Forbidden: there is no such field"),
        (&|one| one["claims"] = json!({}), "jwt[0].claims: Forbidden: there is no such field"),
    ];
    for (change, expected) in table {
        let error = read(&[jwt(change)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let error = read(&[jwt(|_| {}), jwt(|_| {})]).unwrap_err().to_string();
    assert_eq!(error, "jwt[1].issuer.url: Duplicate value: \"https://a.example\"");
    let many: Vec<Value> = (0..65).map(|_| jwt(|_| {})).collect();
    assert_eq!(read(&many).unwrap_err().to_string(), "jwt: Too many: 65: must have at most 64 items");
}

#[test]
fn mistakes_about_claims_are_named_by_their_path() {
    let mapping = |name: &str, value: Value| jwt(|one| one["claimMappings"][name] = value);
    let rule = |rules: Value| jwt(|one| one["claimValidationRules"] = rules);
    let user = |rules: Value| jwt(|one| one["userValidationRules"] = rules);
    let extra = |key: &str| mapping("extra", json!([{"key": key, "valueExpression": "claims.a"}]));
    for (one, expected) in [
        (mapping("username", json!({})), "claimMappings.username: Required value: claim or expression is required"),
        (mapping("username", json!({"claim": "a"})), "username.prefix: Required value: prefix is required when claim"),
        (
            mapping("username", json!({"claim": "a", "expression": "claims.a"})),
            "claimMappings.username: Invalid value: \"\": claim and expression can't both be set",
        ),
        (
            mapping("username", json!({"expression": "claims.a", "prefix": "a"})),
            "username.prefix: Invalid value: \"a\": may not be specified when expression is set",
        ),
        (
            mapping("username", json!({"expression": "claims."})),
            "username.expression: Invalid value: \"claims.\": comp",
        ),
        (mapping("username", json!({"expression": "user.a"})), "undeclared reference to 'user'"),
        (
            mapping("username", json!({"expression": "claims.email"})),
            "claims.email_verified must be used in claimMappings.username.expression or",
        ),
        (mapping("groups", json!({"claim": "a"})), "groups.prefix: Required value"),
        (mapping("uid", json!({"claim": "a", "prefix": "b"})), "uid.prefix: Forbidden: there is no such field"),
        (mapping("uid", json!({"claim": "a", "expression": "claims.b"})), "uid: Invalid value: \"\": claim and expr"),
        (extra(""), "extra[0].key: Required value"),
        (extra("a"), "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        (extra("example.org/A"), "key: Invalid value: \"example.org/A\": must be lowercase"),
        (extra("a_b/c"), "a lowercase RFC 1123 subdomain"),
        (extra("example.org/a b"), "Invalid path (regex used for validation is"),
        (extra("k8s.io/a"), "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"),
        (extra("x.kubernetes.io/a"), "reserved for Kubernetes use"),
        (
            mapping(
                "extra",
                json!([{"key": "a.b/c", "valueExpression": "'a'"}, {"key": "a.b/c", "valueExpression": "'b'"}]),
            ),
            "extra[1].key: Duplicate value: \"a.b/c\"",
        ),
        (mapping("extra", json!([{"key": "a.b/c"}])), "extra[0].valueExpression: Required value"),
        (rule(json!([{}])), "claimValidationRules[0]: Required value: claim or expression is required"),
        (rule(json!([{"claim": "a", "expression": "true"}])), "Invalid value: \"a\": claim and expression can't both"),
        (
            rule(json!([{"claim": "a", "message": "b"}])),
            "message: Invalid value: \"b\": may not be specified when claim",
        ),
        (rule(json!([{"claim": "a"}, {"claim": "a"}])), "claimValidationRules[1].claim: Duplicate value: \"a\""),
        (
            rule(json!([{"expression": "true", "requiredValue": "b"}])),
            "requiredValue: Invalid value: \"b\": may not be",
        ),
        (rule(json!([{"expression": "true"}, {"expression": "true"}])), "[1].expression: Duplicate value: \"true\""),
        (rule(json!([{"expression": "'a'"}])), "expression: Invalid value: \"'a'\": must evaluate to bool"),
        (user(json!([{}])), "userValidationRules[0].expression: Required value"),
        (user(json!([{"expression": "user.name == 'a'"}])), "undefined field 'name'"),
        (user(json!([{"expression": "claims.a"}])), "undeclared reference to 'claims'"),
        (user(json!([{"expression": "true"}, {"expression": "true"}])), "userValidationRules[1].expression: Duplicate"),
    ] {
        let error = read(&[one]).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // An address may be a name where it is said somewhere that it must be verified.
    for good in [
        mapping("username", json!({"expression": "claims.?email_verified.orValue(true) ? claims.email : claims.sub"})),
        jwt(|one| {
            one["claimMappings"]["username"] = json!({"expression": "claims.email"});
            one["claimValidationRules"] = json!([{"expression": "claims.email_verified == true"}]);
        }),
    ] {
        read(&[good]).unwrap();
    }
    // All of them are told at once.
    let two = [mapping("username", json!({})), jwt(|one| one["issuer"]["audiences"] = json!([]))];
    let error = read(&two).unwrap_err().to_string();
    assert!(error.contains("jwt[0].claimMappings.username") && error.contains("jwt[1].issuer.audiences"), "{error}");
}

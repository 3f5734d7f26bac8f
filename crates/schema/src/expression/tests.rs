use serde_json::json;

use super::*;

#[derive(Debug)]
struct Masters;

impl Authorize for Masters {
    fn check(&self, asked: &Asked) -> Verdict {
        let is_allowed = asked.verb == "get" && asked.resource == "secrets" && asked.namespace == "a";
        let is_allowed = is_allowed || asked.path == "/healthz" || asked.service_account.is_some();
        Verdict { is_allowed, reason: format!("asked for {}", asked.verb) }
    }

    fn request_resource(&self) -> Asked {
        Asked { resource: "secrets".to_owned(), namespace: "a".to_owned(), ..Asked::default() }
    }
}

fn names<'a>() -> Names<'a> {
    let variables: Option<&[&str]> = Some(&["big", "small", "bad"]);
    Names { has_params: true, has_authorizer: true, variables, has_patches: true, ..Names::default() }
}

fn compiled(source: &str) -> Expression {
    Expression::compile(source, &names(), Wants::Anything).unwrap_or_else(|why| panic!("{source}: {why}"))
}

fn result(source: &str) -> Result<Value, Fault> {
    let object = json!({
        "metadata": {"name": "web", "namespace": "a", "labels": {"app": "x", "a-b": "c"}},
        "spec": {"replicas": 3, "ratio": 0.5, "list": [1, 2, 3], "names": ["b", "a"], "size": "2Gi",
            "containers": [{"name": "one", "image": "img:1"}, {"name": "two", "image": "img:2"}]},
    });
    let request = json!({"operation": "CREATE", "userInfo": {"username": "eve", "groups": ["g"]}, "name": "web"});
    let variables: Vec<(String, Expression)> =
        [("small", "object.spec.replicas"), ("big", "variables.small * 10"), ("bad", "object.nope")]
            .map(|(name, source)| (name.to_owned(), compiled(source)))
            .into();
    let expression = compiled(source);
    let budget = Budget::default();
    let inputs = Inputs {
        object: &object,
        old_object: &Value::Null,
        request: &request,
        params: &json!({"max": 5}),
        namespace: &Value::Null,
        authorizer: Some(&Masters),
        ..Inputs::default()
    };
    Evaluation::new(inputs, &variables, &budget).json(&expression)
}

#[test]
fn expressions_yield_what_they_do_upstream() {
    let table = [
        ("object.spec.replicas <= params.max", json!(true)),
        ("object.metadata.labels['a-b'] + '!'", json!("c!")),
        ("object.metadata.namespace", json!("a")),
        ("has(object.spec.nope) || has(object.spec.size)", json!(true)),
        ("oldObject == null && object != null", json!(true)),
        ("object.spec.list.map(x, x * 2)", json!([2, 4, 6])),
        ("object.spec.list.filter(x, x > 1)", json!([2, 3])),
        ("object.spec.list.all(x, x > 0) && object.spec.list.exists(x, x == 3)", json!(true)),
        ("object.spec.list.exists_one(x, x == 3)", json!(true)),
        ("object.spec.containers.all(c, c.image.startsWith('img:'))", json!(true)),
        ("object.metadata.labels.all(k, k.size() < 5)", json!(true)),
        ("object.metadata.labels.all(k, v, v != k)", json!(true)),
        ("object.metadata.labels.transformMap(k, v, v + k)", json!({"a-b": "ca-b", "app": "xapp"})),
        ("object.spec.list.transformList(i, v, i * v)", json!([0, 2, 6])),
        ("variables.big + variables.small", json!(33)),
        ("cel.bind(n, object.spec.replicas, n + n)", json!(6)),
        ("object.?spec.?nope.orValue('none')", json!("none")),
        ("object.spec.?size.optMap(s, s + '!').orValue('')", json!("2Gi!")),
        ("object.metadata.labels[?'app'].hasValue()", json!(true)),
        ("quantity(object.spec.size).isGreaterThan(quantity('1Gi'))", json!(true)),
        ("object.spec.names.isSorted()", json!(false)),
        ("sets.contains(object.spec.names, ['a'])", json!(true)),
        ("'%s has %d'.format([object.metadata.name, object.spec.replicas])", json!("web has 3")),
        ("'a,b'.split(',').join('-')", json!("a-b")),
        ("'abc'.matches('^a.c$') && 'xay'.find('a') == 'a'", json!(true)),
        ("url('https://example.com:80/x').getHost()", json!("example.com:80")),
        ("ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')", json!(true)),
        ("type(object.spec.replicas) == int && type('a') == string", json!(true)),
        ("object.spec.ratio * 2.0 == 1.0 && dyn(1) == 1.0", json!(true)),
        ("timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-02T00:00:00Z')", json!(true)),
        ("duration('1h') + duration('30m') == duration('90m')", json!(true)),
        ("request.userInfo.username + ' ' + request.operation", json!("eve CREATE")),
        ("'g' in request.userInfo.groups", json!(true)),
        ("object.nope == 1 || true", json!(true)),
        ("[1, 0].exists(x, 4 / x == 4)", json!(true)),
        ("size('äöü') == 3 && size(object.spec.list) == 3", json!(true)),
        ("authorizer.group('').resource('secrets').namespace('a').check('get').allowed()", json!(true)),
        ("authorizer.group('').resource('secrets').namespace('b').check('get').allowed()", json!(false)),
        ("authorizer.requestResource.check('get').allowed()", json!(true)),
        ("authorizer.path('/healthz').check('get').reason()", json!("asked for get")),
        ("authorizer.serviceAccount('n', 's').group('x').resource('y').check('list').allowed()", json!(true)),
        (
            "Object{spec: Object.spec{replicas: 1, containers: [Object.spec.containers.item{name: 'x'}]}}",
            json!({"spec": {"replicas": 1, "containers": [{"name": "x"}]}}),
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]",
            json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}]),
        ),
    ];
    for (source, wanted) in table {
        assert_eq!(result(source), Ok(wanted), "{source}");
    }
}

#[test]
fn failures_are_worded_as_upstream_words_them() {
    let table = [
        ("object.spec.nope", "no such key: nope"),
        ("oldObject.spec", "no such key: spec"),
        ("variables.bad == 1", "no such key: nope"),
        ("object.spec.list[7]", "index out of bounds: 7"),
        ("object.metadata.labels['x']", "no such key: x"),
        ("object.spec.replicas / 0", "division by zero"),
        ("object.spec.replicas + 'a'", "no such overload"),
        ("object.spec.size.nope", "no such key: nope"),
        (
            "Object{spec: Object.status{a: 1}}",
            "unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
    ];
    for (source, wanted) in table {
        assert_eq!(result(source), Err(Fault::failed(wanted)), "{source}");
    }
}

#[test]
fn what_cannot_work_is_refused_when_it_is_compiled() {
    let none = Names::default();
    let table = [
        ("object.x == ", Wants::Bool, "compilation failed: ERROR: <input>:1:"),
        (
            "foo == 1",
            Wants::Bool,
            "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^",
        ),
        ("params.x == 1", Wants::Bool, "undeclared reference to 'params' (in container '')"),
        ("variables.x", Wants::Bool, "undeclared reference to 'variables' (in container '')"),
        (
            "request.nope == 'a'",
            Wants::Bool,
            "ERROR: <input>:1:8: undefined field 'nope'\n | request.nope == 'a'\n | .......^",
        ),
        ("object.x.nope()", Wants::Bool, "ERROR: <input>:1:14: undeclared reference to 'nope' (in container '')"),
        ("'a' + 'b'", Wants::Bool, "must evaluate to bool"),
        ("1", Wants::String, "must evaluate to string"),
        ("1", Wants::StringOrNull, "must evaluate to one of [string null_type]"),
        ("1 + 'a' == 2", Wants::Bool, "found no matching overload for '_+_' applied to '(int, string)'"),
        ("request.name == 1", Wants::Bool, "found no matching overload for '_==_' applied to '(string, int)'"),
        ("Object{}", Wants::Object, "undeclared reference to 'Object' (in container '')"),
    ];
    for (source, wants, wanted) in table {
        let why = Expression::compile(source, &none, wants).expect_err(source);
        assert!(why.contains(wanted), "{source}: {why}");
    }
    let why = Expression::compile("variables.later", &names(), Wants::Anything).expect_err("unknown variable");
    assert!(why.contains("undefined field 'later'"), "{why}");
    Expression::compile("null", &none, Wants::StringOrNull).expect("null is allowed");
}

#[test]
fn work_stops_at_the_limit() {
    let long: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    let runaway = format!("[{0}].all(a, [{0}].all(b, [{0}].all(c, a + b + c >= 0)))", long[..80].join(","));
    assert_eq!(result(&runaway), Err(Fault::CallTooExpensive));
    // Errors on one side do not let the other go on for ever.
    assert_eq!(result(&format!("false || {runaway}")), Err(Fault::CallTooExpensive));
    let mut doubling = "'0123456789'".to_owned();
    for depth in 0..40 {
        doubling = format!("cel.bind(x{depth}, {doubling}, x{depth} + x{depth})");
    }
    assert_eq!(result(&doubling), Err(Fault::CallTooExpensive));
    assert!(result("'%.999999999f'.format([1.0])").is_err());
    assert!(result("quantity('1e999999999').isInteger()").is_err());
    assert!(result("timestamp('2024-01-01T00:00:00Z') + duration('2562047h')").is_ok());
    let mut long = "duration('2562047h')".to_owned();
    for depth in 0..12 {
        long = format!("cel.bind(d{depth}, {long}, d{depth} + d{depth})");
    }
    assert!(result(&format!("timestamp('2024-01-01T00:00:00Z') + {long}")).is_err());
    assert_eq!(result("format.datetime().validate('2024-01-01T12:34:5éZ').hasValue()"), Ok(json!(true)));
}

/// `body` about `x`, which holds as many items as two to the fortieth, though nothing is copied.
fn about_a_tower(body: &str) -> String {
    let bind = |body, level| format!("cel.bind(v{level}, [v{0}, v{0}], {body})", level - 1);
    let tower = (1..40).rev().fold(format!("cel.bind(x, [v39, v39], {body})"), bind);
    format!("cel.bind(v0, [object, 'a'], {tower})")
}

#[test]
fn what_holds_itself_many_times_is_paid_for_where_it_is_looked_at() {
    for body in [
        "x",
        "x == x",
        "x != [x, x]",
        "x in [x]",
        "{'a': x} == {'a': x}",
        "optional.of(x) == optional.of(x)",
        "Object{spec: x} == Object{spec: x}",
        "Object{spec: x}",
        "[JSONPatch{op: 'add', path: '/spec/x', value: x}]",
        "string(x)",
        "'%s'.format([x])",
        "x.flatten()",
        "sets.contains([x], [x])",
        "timestamp('2024-01-01T00:00:00Z') == x",
        "x + x",
    ] {
        assert_eq!(result(&about_a_tower(body)), Err(Fault::CallTooExpensive), "{body}");
    }
    for (body, wanted) in [("x.size()", json!(2)), ("x == []", json!(false)), ("x.map(y, 1)", json!([1, 1]))] {
        assert_eq!(result(&about_a_tower(body)), Ok(wanted), "{body}");
    }
    assert_eq!(
        Evaluation::new(Inputs::default(), &[], &Budget::default())
            .object(&compiled(&about_a_tower("Object{spec: x}"))),
        Err(Fault::CallTooExpensive)
    );
}

#[test]
fn looking_takes_no_longer_than_what_is_spent() {
    let object = json!({"many": vec![0; 1_000_000], "long": "x".repeat(1 << 20)});
    let numbers: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    for body in ["[] != object.many", "object.many.exists(x, true)", "[object.many] != []", "[object.many] != [[]]"] {
        let source = format!("[{}].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, {body}))", numbers.join(","));
        let budget = Budget::default();
        let inputs = Inputs { object: &object, ..Inputs::default() };
        assert_eq!(Evaluation::new(inputs, &[], &budget).json(&compiled(&source)), Ok(json!(true)), "{body}");
    }
    for body in [
        "{object.long: 1}.size() > 0",
        "!(object.long in {'a': 1})",
        "'x'.find('y') == '' && object.long.split('').size() > 0",
    ] {
        let source = format!("[{}].all(a, {body})", numbers.join(","));
        let budget = Budget::default();
        let inputs = Inputs { object: &object, ..Inputs::default() };
        assert_eq!(
            Evaluation::new(inputs, &[], &budget).json(&compiled(&source)),
            Err(Fault::CallTooExpensive),
            "{body}"
        );
    }
}

#[test]
fn values_are_not_nested_without_end() {
    let list: Vec<String> = (0..1000).map(|level| format!("v{level}")).collect();
    let known: Vec<&str> = list.iter().map(String::as_str).collect();
    let names = Names { variables: Some(&known), ..Names::default() };
    let compiled = |source: &str| Expression::compile(source, &names, Wants::Anything).expect("compiles");
    let variables: Vec<(String, Expression)> = (0..1000_usize)
        .map(|level| {
            let source =
                level.checked_sub(1).map_or("[1]".to_owned(), |below| format!("[optional.of(variables.v{below})]"));
            (format!("v{level}"), compiled(&source))
        })
        .collect();
    let (budget, asked) = (Budget::default(), list.iter().map(|name| compiled(&format!("variables.{name} == []"))));
    let asked: Vec<Expression> = asked.collect();
    let evaluation = Evaluation::new(Inputs::default(), &variables, &budget);
    let results: Vec<Result<Value, Fault>> = asked.iter().map(|asked| evaluation.json(asked)).collect();
    assert_eq!(results[50], Ok(json!(false)));
    assert_eq!(results[999], Err(Fault::failed("value is nested too deeply")));
    // What is to be stored is nested less deeply.
    let nested = |levels: usize| {
        let bind = |body, level| format!("cel.bind(v{}, [[[v{level}]]], {body})", level + 1);
        (0..levels).rev().fold(format!("v{levels}"), bind).replace("[[[v0]]]", "[[[1]]]")
    };
    assert!(result(&nested(30)).is_ok());
    assert_eq!(result(&nested(40)), Err(Fault::failed(croft_meta::json::TOO_DEEP)));
}

#[test]
fn deep_expressions_fit_the_stack_of_a_worker() {
    let deep = format!("1{}", " + 1".repeat(140));
    let run = move || assert_eq!(result(&deep), Ok(json!(141)));
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread").join().expect("no overflow");
}

#[test]
fn expressions_about_tokens_see_claims_or_the_user() {
    let claims = json!({"sub": "ann", "email": "a@b", "groups": ["x", "y"], "exp": 9.5, "example.com/admin": true,
        "nested": {"a.b": {"c": [1.0]}}});
    let user = json!({"username": "ann", "uid": "u1", "groups": ["g"], "extra": {"example.com/x": ["1"]}});
    let names = |scope| Names { scope, ..Names::default() };
    let result = |scope, source: &str| {
        let expression = Expression::compile(source, &names(scope), Wants::Anything);
        let expression = expression.unwrap_or_else(|why| panic!("{source}: {why}"));
        let budget = Budget::default();
        let inputs = Inputs { claims: &claims, user: &user, ..Inputs::default() };
        Evaluation::new(inputs, &[], &budget).json(&expression)
    };
    for (scope, source, expected) in [
        (Scope::Claims, "claims.sub + '@' + claims.groups[0]", json!("ann@x")),
        (Scope::Claims, "claims.exp + 1.0 > 10", json!(true)),
        (Scope::Claims, "claims.groups.map(g, 'a:' + g)", json!(["a:x", "a:y"])),
        (Scope::Claims, "claims.example__dot__com__slash__admin", json!(true)),
        (Scope::Claims, "claims.nested.a__dot__b.c[0]", json!(1.0)),
        (Scope::Claims, "has(claims.nope) || has(claims.example__dot__com__slash__admin)", json!(true)),
        (Scope::Claims, "claims.?hd.orValue('') == ''", json!(true)),
        (Scope::User, "!user.username.startsWith('system:') && user.groups.all(g, g != 'x')", json!(true)),
        (Scope::User, "user.extra['example.com/x'][0] + user.uid", json!("1u1")),
    ] {
        assert_eq!(result(scope, source), Ok(expected), "{source}");
    }
    for (scope, source, why) in [
        (Scope::Claims, "user.username", "undeclared reference to 'user'"),
        (Scope::Claims, "object.spec", "undeclared reference to 'object'"),
        (Scope::User, "claims.sub", "undeclared reference to 'claims'"),
        (Scope::User, "user.name", "undefined field 'name'"),
        (Scope::Request, "claims.sub", "undeclared reference to 'claims'"),
    ] {
        let error = Expression::compile(source, &names(scope), Wants::Anything).unwrap_err();
        assert!(error.contains(why), "{source}: {error}");
    }
}

#[test]
fn it_is_known_which_claims_an_expression_looks_at() {
    let compile = |source: &str| {
        let names = Names { scope: Scope::Claims, ..Names::default() };
        Expression::compile(source, &names, Wants::Anything).unwrap_or_else(|why| panic!("{source}: {why}"))
    };
    for source in [
        "claims.email",
        "claims.email.lowerAscii() + 'x'",
        "claims.?email.orValue('')",
        "has(claims.email) ? 'a' : 'b'",
        "[claims.email]",
        "{'a': claims.email}.a",
        "['a'].exists(x, x == claims.email)",
        "cel.bind(x, claims.email, x)",
    ] {
        assert!(compile(source).selects("claims", "email"), "{source}");
    }
    for source in ["claims.sub", "claims.email_verified", "claims.nested.email", "'claims.email'"] {
        assert!(!compile(source).selects("claims", "email"), "{source}");
    }
}

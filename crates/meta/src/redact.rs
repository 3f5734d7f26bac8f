//! Takes secrets out of what is written down or leaves the cluster: their names stay, their values never.
//!
//! Secrets lose all their values. Elsewhere the name of a field decides (`password`, `clientSecret`, `userData`, …), also
//! inside the JSON and the lines of text that settings, addons and ConfigMaps keep as strings, wherever in a line it stands;
//! and wherever they stand, private keys and the passwords of URLs go. Too much is better than too little.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

pub const HIDDEN: &str = "(redacted)";

/// Parts of names whose values are nobody's business; compared without case, `-` and `_`.
const SECRETIVE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "accesskey",
    "encryptionkey",
    "signingkey",
    "privatekey",
    "token",
    "credential",
    "kubeconfig",
    "userdata",
    "networkdata",
    "authorization",
    "apikey",
    "dockerconfig",
    "tlskey",
    "clientkey",
    "totp",
    "otpauth",
    "recoverycode",
];
/// Names that are nothing else.
const SECRET: &[&str] = &["auth", "pass", "chpasswd", "htpasswd"];
/// Ends of names for what a secret is called, where it is or how it is used: one looks for these in a bundle.
const ABOUT: &[&str] = &[
    "name",
    "names",
    "namespace",
    "ref",
    "refs",
    "id",
    "ttl",
    "path",
    "file",
    "class",
    "seconds",
    "policy",
    "enabled",
    "type",
    "existingsecret",
    "imagepullsecret",
    "imagepullsecrets",
];
/// Secrets all the same.
const NOT_ABOUT: &[&str] = &["accesskeyid", "secretid"];
/// Copies of Secrets that a VirtualMachineBackup has in its status: each has a name and `data`, whose keys can be anything.
pub const SECRET_BACKUPS: &str = "secretBackups";
/// Repeats the object, from before anything was taken out of it.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What makes the text behind it a value: `password: x`, `"token" = "x"`, `{adminPassword: x`, `;Password=x`.
static KEY: LazyLock<Regex> = LazyLock::new(|| {
    // Used by the tests below: it is a regex, and so are the others.
    Regex::new(r#"(?P<key>[A-Za-z0-9_.\-]+)\\*["']?[ \t]*[:=][ \t]*"#).unwrap_or_else(|error| unreachable!("{error}"))
});
static URL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*://)[^/\s@:]*:[^/\s@]*@")
        .unwrap_or_else(|error| unreachable!("{error}"))
});
static PRIVATE_KEY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)")
        .unwrap_or_else(|error| unreachable!("{error}"))
});
static BEARER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?P<kind>bearer|basic)\s+[A-Za-z0-9._~+/=:\-]{12,}")
        .unwrap_or_else(|error| unreachable!("{error}"))
});

/// Takes the secrets out of an object.
pub fn object(object: &mut Value) {
    if object["kind"] == "Secret" && object["apiVersion"] == "v1" {
        for field in ["data", "stringData"] {
            let values = object.get_mut(field).and_then(Value::as_object_mut);
            values.into_iter().flatten().for_each(|(_, value)| *value = HIDDEN.into());
        }
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // Says who wrote what, at length; of no use to those who read bundles.
        metadata.remove("managedFields");
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        if let Some(applied) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) {
            *applied = HIDDEN.into();
        }
    }
    value(object);
}

/// Takes the secrets out of a log or another text.
pub fn text(text: &str) -> String {
    let text = PRIVATE_KEY.replace_all(text, HIDDEN);
    let text = URL.replace_all(&text, format!("${{scheme}}{HIDDEN}@"));
    let text = BEARER.replace_all(&text, format!("${{kind}} {HIDDEN}"));
    lines(&text)
}

/// Hides what stands behind secretive names, and the deeper lines that belong to it (`password: |`).
fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hidden_below = None;
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let depth = body.len() - body.trim_start().len();
        if let Some(limit) = hidden_below {
            if body.trim().is_empty() || depth > limit {
                continue;
            }
            hidden_below = None;
        }
        if let Some(json) = json(body) {
            out.push_str(&json);
        } else if hide_values(body, &mut out) {
            hidden_below = Some(body.len() - body.trim_start_matches([' ', '\t', '-']).len());
        }
        out.push_str(end);
    }
    out
}

/// Appends a line without its secrets. Says whether the last of them may go on in the lines below.
fn hide_values(line: &str, out: &mut String) -> bool {
    let (mut written, mut at) = (0, 0);
    while let Some(found) = KEY.captures_at(line, at) {
        // Both are of every match.
        let (Some(whole), Some(key)) = (found.get(0), found.name("key")) else { break };
        at = whole.end();
        // `croft::tokens: …` tells where a line of a log comes from.
        let is_module = line[..key.start()].ends_with("::");
        if is_module || !is_secretive(key.as_str()) {
            continue;
        }
        out.push_str(&line[written..at]);
        let Some((quote, length)) = quoted(&line[at..]) else {
            out.push_str(HIDDEN);
            return true;
        };
        out.push(quote);
        out.push_str(HIDDEN);
        out.push(quote);
        at += length;
        written = at;
    }
    out.push_str(&line[written..]);
    false
}

/// The quotes that a value stands in, and its length with them; `None` if it is not certain where it ends.
fn quoted(value: &str) -> Option<(char, usize)> {
    let quote = value.chars().next().filter(|first| ['"', '\''].contains(first))?;
    let mut escaped = false;
    for (at, c) in value.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => {
                let rest = &value[at + 1..];
                // In YAML and shells, what follows a quote at once may belong to the value.
                let is_end = rest.chars().next().is_none_or(|next| next.is_whitespace() || ",;}])".contains(next));
                return is_end.then_some((quote, at + 1));
            }
            _ => {}
        }
    }
    None
}

/// The same for any JSON, by the names of its fields alone.
pub fn value(whole: &mut Value) {
    match whole {
        Value::Object(fields) => {
            // As environment variables and Helm values are written.
            let is_named = fields.get("name").and_then(Value::as_str).is_some_and(is_secretive);
            for (name, field) in fields.iter_mut() {
                let is_secret = is_secretive(name) || (is_named && name == "value");
                if is_secret && is_plain(field) && !is_count(name, field) {
                    *field = HIDDEN.into();
                    continue;
                }
                if name == SECRET_BACKUPS {
                    hide_copies(field);
                }
                value(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(value),
        Value::String(string) => *string = inner(string),
        _ => {}
    }
}

/// As of Secrets, the names stay.
fn hide_copies(copies: &mut Value) {
    let copies = copies.as_array_mut().into_iter().flatten();
    let fields = copies.filter_map(|copy| copy.get_mut("data")?.as_object_mut()).flatten();
    fields.for_each(|(_, field)| *field = HIDDEN.into());
}

/// How many Secrets there may be, as in a ResourceQuota.
fn is_count(name: &str, value: &Value) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(name, "secrets" | "count/secrets") && value.as_str().is_some_and(is_number)
}

/// Something that can be a secret by itself. Numbers and booleans are settings (`tokenTTL: 5`), empty texts are nothing.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::String(text) => !matches!(text.as_str(), "" | "true" | "false"),
        Value::Array(items) => !items.is_empty() && items.iter().all(is_plain),
        _ => false,
    }
}

/// A string, which may be JSON again.
fn inner(string: &str) -> String {
    if let Some(json) = json(string) {
        return json;
    }
    let may_hide = string.contains([':', '=', ' ', '\n']);
    if may_hide { text(string) } else { string.to_owned() }
}

/// The same text without its secrets, if it is JSON.
fn json(text: &str) -> Option<String> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let mut parsed = serde_json::from_str::<Value>(text).ok()?;
    let before = parsed.clone();
    value(&mut parsed);
    // What has no secrets stays as it was written.
    Some(if parsed == before { text.to_owned() } else { parsed.to_string() })
}

/// Is what goes by this name nobody's business?
pub fn is_secretive(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    let ends_with = |end: &&str| plain.ends_with(end);
    let is_about = ABOUT.iter().any(ends_with) && !NOT_ABOUT.iter().any(ends_with);
    !is_about && (SECRETIVE.iter().any(|part| plain.contains(part)) || SECRET.contains(&plain.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Nothing of it may be left.
    const LEAK: &str = "hunter2";

    #[test]
    fn secrets_keep_their_keys_and_lose_their_values() {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": "s", "managedFields": [{"manager": "x"}],
                "annotations": {LAST_APPLIED: format!("{{\"data\":{{\"a\":\"{LEAK}\"}}}}"), "b": "c"},
            },
            "data": {"anything": "aHVudGVyMg=="}, "stringData": {"more": LEAK},
        });
        object(&mut secret);
        assert_eq!(secret["data"], json!({"anything": HIDDEN}));
        assert_eq!(secret["stringData"], json!({"more": HIDDEN}));
        assert_eq!(secret["metadata"]["annotations"]["b"], "c");
        assert_eq!(secret["metadata"]["managedFields"], Value::Null);
        assert!(!secret.to_string().contains(LEAK), "{secret}");
    }

    #[test]
    fn copies_of_secrets_are_secrets() {
        let copies = json!([{"name": "s", "data": {"anything": LEAK, "b": LEAK}}, {"name": "empty"}]);
        let mut backup = json!({"kind": "VirtualMachineBackup", "status": {SECRET_BACKUPS: copies, "x": 1}});
        object(&mut backup);
        let hidden = json!([{"name": "s", "data": {"anything": HIDDEN, "b": HIDDEN}}, {"name": "empty"}]);
        assert_eq!(backup["status"], json!({SECRET_BACKUPS: hidden, "x": 1}));
        // As the target keeps it, in a string.
        let mut text = json!({"data": {"cfg": format!("{{\"secretBackups\":[{{\"name\":\"s\",\"data\":{{\"k\":\"{LEAK}\"}}}}]}}")}});
        object(&mut text);
        assert!(!text.to_string().contains(LEAK), "{text}");
    }

    #[test]
    fn no_kind_keeps_a_secret() {
        let inside = format!("password: {LEAK}");
        let pem = format!("a\n-----BEGIN RSA PRIVATE KEY-----\n{LEAK}\n-----END RSA PRIVATE KEY-----\nb");
        for mut whole in [
            json!({"kind": "Setting", "value": format!("{{\"type\":\"s3\",\"secretAccessKey\":\"{LEAK}\",\"accessKeyId\":\"{LEAK}\"}}")}),
            json!({"kind": "Setting", "value": format!("http://me:{LEAK}@proxy:3128")}),
            json!({"kind": "Setting", "value": format!("{{\"httpProxy\":\"http://me:{LEAK}@proxy:3128\"}}")}),
            json!({"kind": "VirtualMachine", "spec": {"volumes": [{"cloudInitNoCloud": {"userData": LEAK}}]}}),
            json!({"kind": "VirtualMachine", "spec": {"volumes": [{"cloudInitNoCloud": {"userDataBase64": LEAK}}]}}),
            json!({"kind": "Addon", "spec": {"valuesContent": format!("grafana:\n  adminPassword: {LEAK}\n  x: 1\n")}}),
            json!({"kind": "ConfigMap", "data": {"cloud-init": format!("#cloud-config\n{inside}\n")}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("chpasswd: {{list: [a:{LEAK}]}}\n")}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("chpasswd:\n  list: |\n    a:{LEAK}\n\n    b:{LEAK}\nx: y\n")}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("users:\n  - name: a\n    passwd: >\n      {LEAK}\n")}}),
            json!({"kind": "Pod", "spec": {"env": [{"name": "DB_PASSWORD", "value": LEAK}]}}),
            json!({"kind": "ConfigMap", "data": {"key.pem": pem}}),
            json!({"kind": "X", "spec": {"nested": format!("[{{\"token\":\"{LEAK}\"}}]")}}),
            json!({"kind": "X", "spec": {"passwords": [LEAK, LEAK]}}),
            json!({"kind": "X", "spec": {"secret_id": LEAK, "clientSecret": LEAK, "client_secret": LEAK}}),
            json!({"kind": "X", "spec": {"sharedSecret": LEAK, "webhookSecret": LEAK, "secrets": [LEAK]}}),
            json!({"kind": "X", "spec": {"encryptionKey": LEAK, "signingKey": LEAK, "secret": LEAK}}),
            json!({"kind": "Pod", "spec": {"env": [{"name": "OIDC_CLIENT_SECRET", "value": LEAK}]}}),
            json!({"kind": "Pod", "spec": {"args": [format!("--verbose --client-secret={LEAK}")]}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("users: [{{name: a, passwd: {LEAK}}}]\n")}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("grafana: {{adminPassword: {LEAK}}}\n")}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("grafana: {{adminPassword: |\n    {LEAK}\n}}\n")}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("Server=x;Password={LEAK};Other={LEAK}")}}),
            json!({"kind": "ConfigMap", "data": {"c": format!("a: {{password: 'it''s {LEAK}', b: c}}")}}),
            json!({"kind": "X", "spec": {"log": format!("got {{\"password\":\"a \\\"{LEAK}\",\"b\":1}} back")}}),
            json!({"kind": "X", "spec": {"log": format!("body=\"{{\\\"token\\\":\\\"{LEAK}\\\"}}\" sent")}}),
            json!({"kind": "X", "spec": {"header": format!("Authorization: Bearer {LEAK}{LEAK}")}}),
        ] {
            object(&mut whole);
            assert!(!whole.to_string().contains(LEAK), "{whole}");
            assert!(whole.to_string().contains(HIDDEN), "{whole}");
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        let spec = json!({
            "secretName": "a", "secretRef": {"name": "b"}, "tokenTTL": 5, "accessCredentials": [{"sshPublicKey": {"x": 1}}],
            "url": "http://example.com:80/a@b", "text": "a plain sentence: with words", "list": "{\"a\": 1}",
            "automountServiceAccountToken": false, "sshNames": "[\"ns/key\"]", "empty": {"password": ""},
            "imagePullSecrets": [{"name": "c"}], "passwordSecretRef": {"name": "d", "key": "e"}, "existingSecret": "f",
            "hard": {"secrets": "10", "count/secrets": "5"}, "secretProviderClass": "g", "useSecret": "true",
            "csi.storage.k8s.io/provisioner-secret-name": "h", "args": ["--tls-private-key-file=/etc/i --v=2"],
            "values": "imagePullSecrets:\n- name: j\nexistingSecret: k\n",
        });
        let mut whole = json!({"kind": "X", "spec": spec});
        object(&mut whole);
        assert_eq!(whole["spec"], spec);
        assert_eq!(text("vm started vm=a node=b\n"), "vm started vm=a node=b\n");
        let line = "INFO croft::rest::tokens: logged in user=\"admin\"\n";
        assert_eq!(text(line), line);
    }

    #[test]
    fn what_stands_around_a_secret_stays_where_it_is_certain() {
        for (line, expected) in [
            ("made token=\"x\" user=\"a\"", "made token=\"(redacted)\" user=\"a\""),
            ("made token=x user=a", "made token=(redacted)"),
            ("{'secret': 'x', a: b}", "{'secret': '(redacted)', a: b}"),
            ("in {\"a\":1,\"token\":\"x\",\"n\":2}", "in {\"a\":1,\"token\":\"(redacted)\",\"n\":2}"),
            ("{\"n\":2,\"token\":\"x\"}", "{\"n\":2,\"token\":\"(redacted)\"}"),
            ("password: \"x\"\n  deeper: y", "password: \"(redacted)\"\n  deeper: y"),
        ] {
            assert_eq!(text(line), expected);
            assert_eq!(text(expected), expected);
        }
    }
}

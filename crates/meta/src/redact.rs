//! Takes secrets out of what is written down or leaves the cluster: their names stay, their values never.
//!
//! Secrets lose all their values. Elsewhere the name of a field decides (`password`, `accessKey`, `userData`, …), also
//! inside the JSON and the lines of text that settings, addons and ConfigMaps keep as strings; and wherever they stand,
//! private keys and the passwords of URLs go. Too much is better than too little.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

pub const HIDDEN: &str = "(redacted)";

/// Parts of names whose values are nobody's business; compared without case, `-` and `_`.
const SECRETIVE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secretkey",
    "accesskey",
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
    "secretvalue",
    "clientkey",
    "totp",
    "otpauth",
    "recoverycode",
];
/// Names that are nothing else.
const SECRET: &[&str] = &["secret", "auth", "pass", "chpasswd", "htpasswd"];
/// Copies of Secrets that a VirtualMachineBackup has in its status: each has a name and `data`, whose keys can be anything.
pub const SECRET_BACKUPS: &str = "secretBackups";
/// Repeats the object, from before anything was taken out of it.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A line such as `password: x`, `"token" = "x"` or `- adminPassword: x`.
static LINE: LazyLock<Regex> = LazyLock::new(|| {
    // Used by the tests below: it is a regex, and so are the others.
    Regex::new(
        r#"^(?P<name>(?P<indent>[ \t\-]*)["'\[\{]*(?P<key>[A-Za-z0-9_.\-]+)["']?[ \t]*[:=][ \t]*)(?P<value>.*)$"#,
    )
    .unwrap_or_else(|error| unreachable!("{error}"))
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

/// Hides what stands behind a secretive name, and the deeper lines that belong to it (`password: |`).
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
        match LINE.captures(body).filter(|found| is_secretive(&found["key"])) {
            Some(found) => {
                out.push_str(&found["name"]);
                out.push_str(HIDDEN);
                hidden_below = Some(found["indent"].len());
            }
            None => out.push_str(body),
        }
        out.push_str(end);
    }
    out
}

/// The same for any JSON, by the names of its fields alone.
pub fn value(whole: &mut Value) {
    match whole {
        Value::Object(fields) => {
            // As environment variables and Helm values are written.
            let is_named = fields.get("name").and_then(Value::as_str).is_some_and(is_secretive);
            for (name, field) in fields.iter_mut() {
                let is_secret = is_secretive(name) || (is_named && name == "value");
                if is_secret && is_plain(field) {
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

/// Something that can be a secret by itself. Numbers and booleans are settings (`tokenTTL: 5`), empty texts are nothing.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty() && items.iter().all(is_plain),
        _ => false,
    }
}

/// A string, which may be JSON again.
fn inner(string: &str) -> String {
    if string.starts_with(['{', '['])
        && let Ok(mut parsed) = serde_json::from_str::<Value>(string)
    {
        let before = parsed.clone();
        value(&mut parsed);
        // What has no secrets stays as it was written.
        return if parsed == before { string.to_owned() } else { parsed.to_string() };
    }
    let may_hide = string.contains([':', '=', ' ', '\n']);
    if may_hide { text(string) } else { string.to_owned() }
}

/// Is what goes by this name nobody's business?
pub fn is_secretive(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    // Names of Secrets and such are what one looks for in a bundle.
    let is_reference = ["name", "namespace", "ref", "id", "ttl", "path", "seconds", "policy", "enabled", "type"]
        .iter()
        .any(|end| plain.ends_with(end) && !plain.ends_with("accesskeyid"));
    !is_reference && (SECRETIVE.iter().any(|part| plain.contains(part)) || SECRET.contains(&plain.as_str()))
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
        });
        let mut whole = json!({"kind": "X", "spec": spec});
        object(&mut whole);
        assert_eq!(whole["spec"], spec);
        assert_eq!(text("vm started vm=a node=b\n"), "vm started vm=a node=b\n");
    }
}

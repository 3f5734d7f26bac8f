//! How the world outside is reached: the settings `http-proxy` and `additional-ca`, and which registries need no certificate.

use std::collections::BTreeMap;

use croft_api::cdi::CDIConfig;
use croft_api::harvester::Setting;
use croft_image::oci::Access;
use croft_image::{Credentials, Proxy, Transport};
use croft_reconcile::{Cache, Key};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use serde::Deserialize;

/// Never through a proxy, whatever the setting says: this host and the cluster's own names.
const DIRECT: &str = "localhost,127.0.0.1,::1,0.0.0.0,.svc,.cluster.local";

#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(super) settings: Cache<Setting>,
    pub(super) cdi: Cache<CDIConfig>,
}

impl Settings {
    pub(super) async fn synced(&self) {
        tokio::join!(self.settings.synced(), self.cdi.synced());
    }

    fn value(&self, name: &str) -> String {
        self.settings.get(&Key::new("", name)).map(|setting| setting.effective().to_owned()).unwrap_or_default()
    }

    pub(crate) fn transport(&self) -> Transport {
        Transport {
            proxy: proxy(&self.value("http-proxy")),
            ca_pem: self.value("additional-ca"),
            ..Transport::default()
        }
    }

    /// Whether DataVolumes that do not say take all their blocks at once.
    pub(crate) fn preallocates(&self) -> bool {
        self.cdi.get(&Key::new("", "config")).is_some_and(|config| config.spec.preallocation == Some(true))
    }

    /// To registries, with these credentials.
    pub(crate) fn access(&self, credentials: Option<Credentials>) -> Access {
        let config = self.cdi.get(&Key::new("", "config"));
        let insecure_registries = config.map(|config| config.spec.insecure_registries.clone()).unwrap_or_default();
        Access { transport: Transport { credentials, ..self.transport() }, insecure_registries }
    }
}

/// `{"httpProxy": .., "httpsProxy": .., "noProxy": ..}`.
fn proxy(setting: &str) -> Proxy {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Value {
        #[serde(rename = "httpProxy")]
        http: String,
        #[serde(rename = "httpsProxy")]
        https: String,
        #[serde(rename = "noProxy")]
        none_for: String,
    }
    let value: Value = serde_json::from_str(setting).unwrap_or_default();
    let none_for = if value.none_for.is_empty() { DIRECT.to_owned() } else { format!("{DIRECT},{}", value.none_for) };
    Proxy { http: value.http, https: value.https, none_for }
}

/// The user and password that a Secret holds for a server, in CDI's way or as Docker writes them.
pub(crate) fn credentials(secret: &Secret, registry: &str) -> Option<Credentials> {
    let text = |key: &str| field(secret.data.as_ref(), key);
    if let (Some(user), Some(password)) = (text("accessKeyId"), text("secretKey")) {
        return Some(Credentials { user, password });
    }
    if let (Some(user), Some(password)) = (text("username"), text("password")) {
        return Some(Credentials { user, password });
    }
    docker_credentials(&text(".dockerconfigjson")?, registry)
}

fn docker_credentials(config: &str, registry: &str) -> Option<Credentials> {
    use base64::Engine;
    #[derive(Deserialize)]
    struct Config {
        auths: BTreeMap<String, Entry>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Entry {
        username: String,
        password: String,
        auth: String,
    }
    let config: Config = serde_json::from_str(config).ok()?;
    let is_it = |name: &str| {
        let name = name.trim_start_matches("https://").trim_start_matches("http://");
        let host = name.split('/').next().unwrap_or_default();
        host == registry || (host == "index.docker.io" && registry == "docker.io")
    };
    let (_, entry) = config.auths.into_iter().find(|(name, _)| is_it(name))?;
    if !entry.username.is_empty() {
        return Some(Credentials { user: entry.username, password: entry.password });
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(entry.auth.trim()).ok()?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(Credentials { user: user.to_owned(), password: password.to_owned() })
}

fn field(data: Option<&BTreeMap<String, ByteString>>, key: &str) -> Option<String> {
    let value = data?.get(key)?;
    String::from_utf8(value.0.clone()).ok()
}

/// Every value of a Secret that is text.
pub(crate) fn texts(secret: &Secret) -> Vec<String> {
    let values = secret.data.iter().flatten();
    values.filter_map(|(_, value)| String::from_utf8(value.0.clone()).ok()).collect()
}

pub(crate) async fn secret(client: &Client, namespace: &str, name: &str) -> Result<Secret, kube::Error> {
    Api::namespaced(client.clone(), namespace).get(name).await
}

/// All certificates of a ConfigMap, one after the other.
pub(crate) async fn certificates(client: &Client, namespace: &str, name: &str) -> Result<String, kube::Error> {
    let map: ConfigMap = Api::namespaced(client.clone(), namespace).get(name).await?;
    Ok(map.data.unwrap_or_default().into_values().collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_proxy_setting_is_understood_and_this_host_stays_direct() {
        let setting = r#"{"httpProxy":"http://p:3128","httpsProxy":"http://s:3128","noProxy":"10.0.0.0/8"}"#;
        let proxy = proxy(setting);
        assert_eq!((proxy.http.as_str(), proxy.https.as_str()), ("http://p:3128", "http://s:3128"));
        assert!(proxy.none_for.ends_with(",10.0.0.0/8") && proxy.none_for.contains("127.0.0.1"));
        for nonsense in ["", "{}", "null", "no json"] {
            assert!(super::proxy(nonsense).http.is_empty(), "{nonsense}");
        }
    }

    #[test]
    fn credentials_are_found_in_every_kind_of_secret() {
        let secret = |data: serde_json::Value| -> Secret {
            let mut secret: Secret = serde_json::from_value(json!({})).unwrap();
            let data: BTreeMap<String, String> = serde_json::from_value(data).unwrap();
            secret.data = Some(data.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect());
            secret
        };
        let docker =
            |auths: serde_json::Value| secret(json!({".dockerconfigjson": json!({"auths": auths}).to_string()}));
        for (secret, expected) in [
            (secret(json!({"accessKeyId": "u", "secretKey": "p"})), true),
            (secret(json!({"username": "u", "password": "p"})), true),
            (docker(json!({"reg.io:5000": {"username": "u", "password": "p"}})), true),
            (docker(json!({"https://reg.io:5000/v1/": {"auth": "dTpw"}})), true),
            (docker(json!({"other.io": {"username": "u", "password": "p"}})), false),
            (secret(json!({"x": "y"})), false),
        ] {
            let found = credentials(&secret, "reg.io:5000");
            let expected = expected.then(|| Credentials { user: "u".to_owned(), password: "p".to_owned() });
            assert_eq!(found, expected, "{:?}", secret.data);
        }
    }
}

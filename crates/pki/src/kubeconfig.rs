//! The file that tells clients where the server is, why to trust it, and who they are.

use std::path::Path;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use crate::{Error, Issued, Result, Secret, file};

/// How the client proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    Certificate { cert_pem: String, key_pem: Secret },
    Token(Secret),
}

impl From<Issued> for Credentials {
    fn from(issued: Issued) -> Self {
        Self::Certificate { cert_pem: issued.cert_pem, key_pem: issued.key_pem }
    }
}

/// One cluster, one user, one context: the current one of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `https://host:port`
    pub server: String,
    pub ca_pem: String,
    pub cluster: String,
    pub user: String,
    pub credentials: Credentials,
}

impl Kubeconfig {
    pub fn to_yaml(&self) -> Result<String> {
        let (client_certificate_data, client_key_data, token) = match &self.credentials {
            Credentials::Certificate { cert_pem, key_pem } => {
                (BASE64_STANDARD.encode(cert_pem), BASE64_STANDARD.encode(key_pem.reveal()), String::new())
            }
            Credentials::Token(token) => (String::new(), String::new(), token.reveal().to_owned()),
        };
        let context = format!("{}@{}", self.user, self.cluster);
        let document = Document {
            api_version: "v1".to_owned(),
            kind: "Config".to_owned(),
            clusters: vec![Named {
                name: self.cluster.clone(),
                body: Body {
                    cluster: Some(Cluster {
                        server: self.server.clone(),
                        certificate_authority_data: BASE64_STANDARD.encode(&self.ca_pem),
                    }),
                    ..Body::default()
                },
            }],
            contexts: vec![Named {
                name: context.clone(),
                body: Body {
                    context: Some(Context { cluster: self.cluster.clone(), user: self.user.clone() }),
                    ..Body::default()
                },
            }],
            current_context: context,
            users: vec![Named {
                name: self.user.clone(),
                body: Body { user: Some(User { client_certificate_data, client_key_data, token }), ..Body::default() },
            }],
        };
        // Long values stay on one line: people cut them out with grep and awk.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        serde_saphyr::to_string_with_options(&document, options).map_err(|err| Error::Kubeconfig(err.to_string()))
    }

    /// Reads the current context. Credentials and authority must be in the file itself, as [`Self::to_yaml`] puts them.
    pub fn from_yaml(yaml: &str) -> Result<Self> {
        let document: Document = serde_saphyr::from_str(yaml).map_err(|err| Error::Kubeconfig(err.to_string()))?;
        let missing = |what: &str, name: &str| Error::Kubeconfig(format!("it has no {what} {name:?}"));
        let current = &document.current_context;
        let context = find(&document.contexts, current).and_then(|body| body.context.as_ref());
        let context = context.ok_or_else(|| missing("context", current))?;
        let cluster = find(&document.clusters, &context.cluster).and_then(|body| body.cluster.as_ref());
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        let user = find(&document.users, &context.user).and_then(|body| body.user.as_ref());
        let user = user.ok_or_else(|| missing("user", &context.user))?;

        let credentials = if !user.token.is_empty() {
            Credentials::Token(Secret::new(user.token.clone()))
        } else if !user.client_certificate_data.is_empty() && !user.client_key_data.is_empty() {
            Credentials::Certificate {
                cert_pem: decode("client-certificate-data", &user.client_certificate_data)?,
                key_pem: decode("client-key-data", &user.client_key_data)?.into(),
            }
        } else {
            return Err(Error::Kubeconfig(format!("user {:?} has neither token nor certificate data", context.user)));
        };
        Ok(Self {
            server: cluster.server.clone(),
            ca_pem: decode("certificate-authority-data", &cluster.certificate_authority_data)?,
            cluster: context.cluster.clone(),
            user: context.user.clone(),
            credentials,
        })
    }

    /// Writes the file with mode 0600, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        file::write(path, &self.to_yaml()?, file::PRIVATE)
    }

    /// `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let Some(yaml) = file::read(path)? else { return Ok(None) };
        Self::from_yaml(&yaml).map(Some)
    }
}

fn find<'a>(entries: &'a [Named], name: &str) -> Option<&'a Body> {
    entries.iter().find(|entry| entry.name == name).map(|entry| &entry.body)
}

fn decode(field: &str, data: &str) -> Result<String> {
    let bytes = BASE64_STANDARD.decode(data).map_err(|err| Error::Kubeconfig(format!("{field}: {err}")))?;
    String::from_utf8(bytes).map_err(|_| Error::Kubeconfig(format!("{field}: not PEM")))
}

#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    clusters: Vec<Named>,
    #[serde(default)]
    contexts: Vec<Named>,
    #[serde(rename = "current-context", default)]
    current_context: String,
    #[serde(default)]
    users: Vec<Named>,
}

#[derive(Serialize, Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    body: Body,
}

/// Exactly one is set, depending on the list.
#[derive(Default, Serialize, Deserialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Cluster>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Context>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<User>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    #[serde(default)]
    certificate_authority_data: String,
    server: String,
}

#[derive(Serialize, Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[derive(Default)]
struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    client_certificate_data: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    client_key_data: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    token: String,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn kubeconfig(credentials: Credentials) -> Kubeconfig {
        Kubeconfig {
            server: "https://192.0.2.1:6443".to_owned(),
            ca_pem: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".repeat(40),
            cluster: "croft".to_owned(),
            user: "admin: yes # really".to_owned(),
            credentials,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        assert_eq!(Kubeconfig::read(&path).unwrap(), None);
        for credentials in [
            Credentials::Token(Secret::new("croft-abc:def")),
            Credentials::Certificate { cert_pem: "cert\n".to_owned(), key_pem: Secret::new("key\n") },
        ] {
            let config = kubeconfig(credentials);
            config.write(&path).unwrap();
            assert_eq!(Kubeconfig::read(&path).unwrap().as_ref(), Some(&config));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn long_values_stay_on_one_line() {
        let yaml = kubeconfig(Credentials::Token(Secret::new("t"))).to_yaml().unwrap();
        let data = yaml.lines().find(|line| line.contains("certificate-authority-data")).unwrap();
        assert!(data.len() > 3000, "{yaml}");
    }

    #[test]
    fn kubectl_style_files_are_read() {
        let yaml = "
apiVersion: v1
kind: Config
preferences: {}
current-context: b
clusters:
- {name: one, cluster: {server: 'https://one', insecure-skip-tls-verify: true}}
- {name: two, cluster: {server: 'https://two', certificate-authority-data: Y2E=}}
contexts:
- {name: a, context: {cluster: one, user: u}}
- {name: b, context: {cluster: two, user: u, namespace: x}}
users:
- name: u
  user:
    token: secret
";
        let config = Kubeconfig::from_yaml(yaml).unwrap();
        assert_eq!((config.server.as_str(), config.ca_pem.as_str()), ("https://two", "ca"));
        assert_eq!(config.credentials, Credentials::Token(Secret::new("secret")));
    }

    #[test]
    fn unusable_files_say_why() {
        for (yaml, expected) in [
            ("", "not a usable kubeconfig"),
            ("[]", "not a usable kubeconfig"),
            ("current-context: a", "it has no context \"a\""),
            ("{current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}]}", "it has no cluster \"c\""),
            (
                "{current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: s}}], users: [{name: u, user: {}}]}",
                "neither token nor certificate data",
            ),
        ] {
            let err = Kubeconfig::from_yaml(yaml).unwrap_err().to_string();
            assert!(err.contains(expected), "{yaml}: {err}");
        }
    }
}

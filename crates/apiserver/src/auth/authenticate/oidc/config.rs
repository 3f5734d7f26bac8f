//! What is configured about tokens of others: the issuers that are trusted, and who their tokens make of somebody.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use croft_pki::SigningAlgorithm;
use croft_schema::expression::Expression;
use serde_json::Value;

use super::config_file;

/// What `--authentication-config`, or the flags `--oidc-…`, say.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    pub(super) issuers: Vec<Arc<JwtAuthenticator>>,
    /// None if nothing is said about it: then requests without credentials are anonymous.
    pub(super) anonymous: Option<Anonymous>,
    pub(super) algorithms: Vec<SigningAlgorithm>,
    /// Where it was read from, to be read again when it changes.
    pub(super) file: Option<ConfigFile>,
}

#[derive(Clone, Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthenticationConfigError {
    #[error("cannot be read")]
    Read(#[source] std::io::Error),
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it is no YAML: {0}")]
    Yaml(String),
    #[error(
        "it is no AuthenticationConfiguration of apiserver.config.k8s.io/v1: its apiVersion is {api_version:?}, its kind {kind:?}"
    )]
    Kind { api_version: String, kind: String },
    #[error("{0}")]
    Fields(String),
    #[error("oidc: unsupported signing alg: {0:?}")]
    Algorithm(String),
}

impl Default for AuthenticationConfig {
    fn default() -> Self {
        Self { issuers: Vec::new(), anonymous: None, algorithms: SigningAlgorithm::ALL.to_vec(), file: None }
    }
}

impl AuthenticationConfig {
    /// Reads a file, which is read again when it changes.
    pub fn read(path: &Path) -> Result<Self, AuthenticationConfigError> {
        let text = config_file::text(path)?;
        let config = Self::parse(&text)?;
        Ok(Self { file: Some(ConfigFile { path: path.to_owned(), text }), ..config })
    }

    /// Reads a configuration, in YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, AuthenticationConfigError> {
        config_file::parse(text)
    }

    /// The same from what flags say: the `jwt` of such a file.
    pub fn of_flags(jwt: &Value, algorithms: &[String]) -> Result<Self, AuthenticationConfigError> {
        let document = serde_json::json!({"jwt": [jwt]});
        let known = |name: &String| {
            SigningAlgorithm::parse(name).ok_or_else(|| AuthenticationConfigError::Algorithm(name.clone()))
        };
        let algorithms = algorithms.iter().map(known).collect::<Result<_, _>>()?;
        Ok(Self { algorithms, ..config_file::document(&document)? })
    }
}

/// An issuer, and who the owners of its tokens are here.
#[derive(Debug)]
pub(super) struct JwtAuthenticator {
    pub(super) issuer: IssuerConfig,
    /// Any of these must be in the token.
    pub(super) audiences: Vec<String>,
    pub(super) required_claims: Vec<(String, String)>,
    pub(super) claim_rules: Vec<Rule>,
    pub(super) username: Source,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    pub(super) extra: Vec<(String, Expression)>,
    pub(super) user_rules: Vec<Rule>,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IssuerConfig {
    pub(super) url: String,
    /// Where its description is, if not below its URL.
    pub(super) discovery_url: Option<String>,
    /// In PEM; empty for those that the machine trusts.
    pub(super) certificate_authority: String,
}

/// Where something about the user comes from.
#[derive(Debug)]
pub(super) enum Source {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

/// What must be true.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) expression: Expression,
    pub(super) message: String,
}

/// Whether requests without credentials are let in as nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Anonymous {
    pub(super) enabled: bool,
    /// Only under these paths; everywhere if there are none.
    pub(super) paths: Vec<String>,
}

impl Anonymous {
    pub(super) fn allows(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|own| own == path))
    }
}

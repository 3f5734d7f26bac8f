//! The file of `--authentication-config`: an AuthenticationConfiguration, read as a whole, with every mistake named by its path
//! in upstream's words.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use croft_meta::field::{go_quote, join_errors};
use croft_meta::{FieldError, FieldPath};
use croft_pki::service_account::{ISSUER, LEGACY_ISSUER};
use reqwest::{Certificate, Url};
use serde_json::{Map, Value, json};

use super::config::{Anonymous, AuthenticationConfig, AuthenticationConfigError, IssuerConfig, JwtAuthenticator};
use crate::config_reader::Reader;

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const KIND: &str = "AuthenticationConfiguration";
const MOST_BYTES: u64 = 1 << 20;
const MOST_ISSUERS: usize = 64;
const MATCH_ANY: &str = "MatchAny";

pub(super) fn text(path: &Path) -> Result<String, AuthenticationConfigError> {
    let file = std::fs::File::open(path).map_err(AuthenticationConfigError::Read)?;
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(AuthenticationConfigError::Read)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(AuthenticationConfigError::TooLarge(MOST_BYTES));
    }
    Ok(text)
}

pub(super) fn parse(text: &str) -> Result<AuthenticationConfig, AuthenticationConfigError> {
    let read: Value =
        serde_saphyr::from_str(text).map_err(|error| AuthenticationConfigError::Yaml(error.to_string()))?;
    let said = |field: &str| read[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (said("apiVersion"), said("kind"));
    let is_known = VERSIONS.iter().any(|version| api_version == format!("{GROUP}/{version}"));
    if !is_known || kind != KIND {
        return Err(AuthenticationConfigError::Kind { api_version, kind });
    }
    document(&read)
}

/// What a file says, without asking whether it says what it is.
pub(super) fn document(read: &Value) -> Result<AuthenticationConfig, AuthenticationConfigError> {
    let mut checker = Checker::default();
    let config = checker.config(read);
    if checker.read.errors.is_empty() {
        return Ok(config);
    }
    Err(AuthenticationConfigError::Fields(join_errors(&checker.read.errors)))
}

#[derive(Default)]
pub(super) struct Checker {
    pub(super) read: Reader,
}

impl Checker {
    fn config(&mut self, document: &Value) -> AuthenticationConfig {
        let root = FieldPath::root();
        let known = ["apiVersion", "kind", "jwt", "anonymous"];
        let Some(fields) = self.read.fields(&root, document, &known) else { return AuthenticationConfig::default() };
        let path = root.child("jwt");
        let list = self.read.list(&path, fields.get("jwt"));
        if list.len() > MOST_ISSUERS {
            self.read.errors.push(FieldError::too_many(&path, list.len(), MOST_ISSUERS));
            return AuthenticationConfig::default();
        }
        let (mut urls, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
        let mut issuers = Vec::new();
        for (at, one) in list.iter().enumerate() {
            let path = path.index(at);
            let found = self.authenticator(&path, one);
            let issuer = path.child("issuer");
            self.unrepeated(&issuer.child("url"), &one["issuer"]["url"], &mut urls);
            self.unrepeated(&issuer.child("discoveryURL"), &one["issuer"]["discoveryURL"], &mut discovery_urls);
            issuers.extend(found.map(Arc::new));
        }
        let anonymous = fields.get("anonymous").filter(|value| !value.is_null());
        let anonymous = anonymous.and_then(|value| self.anonymous(&root.child("anonymous"), value));
        AuthenticationConfig { issuers, anonymous, ..AuthenticationConfig::default() }
    }

    fn unrepeated(&mut self, path: &FieldPath, value: &Value, seen: &mut BTreeSet<String>) {
        let Some(text) = value.as_str().filter(|text| !text.is_empty()) else { return };
        if !seen.insert(text.to_owned()) {
            self.read.errors.push(FieldError::duplicate(path, text));
        }
    }

    fn anonymous(&mut self, path: &FieldPath, value: &Value) -> Option<Anonymous> {
        let fields = self.read.fields(path, value, &["enabled", "conditions"])?;
        let enabled = self.read.flag(path, fields, "enabled").unwrap_or_default();
        let at = path.child("conditions");
        let list = self.read.list(&at, fields.get("conditions"));
        let mut paths = Vec::new();
        for (index, condition) in list.iter().enumerate() {
            let at = at.index(index);
            let Some(fields) = self.read.fields(&at, condition, &["path"]) else { continue };
            paths.push(self.read.text(&at.child("path"), fields.get("path")));
        }
        if !enabled && !list.is_empty() {
            let why = "enabled should be set to true when conditions are defined";
            self.read.errors.push(FieldError::invalid(&at, list, why));
        }
        Some(Anonymous { enabled, paths })
    }

    fn authenticator(&mut self, path: &FieldPath, value: &Value) -> Option<JwtAuthenticator> {
        let known = ["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
        let fields = self.read.fields(path, value, &known)?;
        let nothing = json!({});
        let part = |name: &str| fields.get(name).filter(|value| !value.is_null()).unwrap_or(&nothing);
        let issuer = self.issuer(&path.child("issuer"), part("issuer"));
        let rules = self.claim_rules(&path.child("claimValidationRules"), fields.get("claimValidationRules"));
        let mappings = self.mappings(&path.child("claimMappings"), part("claimMappings"), &rules.1);
        let user_rules = self.user_rules(&path.child("userValidationRules"), fields.get("userValidationRules"));
        let ((issuer, audiences), mappings) = (issuer?, mappings?);
        Some(JwtAuthenticator {
            issuer,
            audiences,
            required_claims: rules.0,
            claim_rules: rules.1,
            username: mappings.username?,
            groups: mappings.groups,
            uid: mappings.uid,
            extra: mappings.extra,
            user_rules,
        })
    }

    fn issuer(&mut self, path: &FieldPath, value: &Value) -> Option<(IssuerConfig, Vec<String>)> {
        let known =
            ["url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy", "egressSelectorType"];
        let fields = self.read.fields(path, value, &known)?;
        let text = |checker: &mut Self, name: &str| checker.read.text(&path.child(name), fields.get(name));
        let (url, discovery_url) = (text(self, "url"), text(self, "discoveryURL"));
        let certificate_authority = text(self, "certificateAuthority");
        self.issuer_url(&path.child("url"), &url);
        self.discovery_url(&path.child("discoveryURL"), &url, &discovery_url);
        let audiences = self.audiences(path, fields);
        if !certificate_authority.is_empty() {
            let certificates = Certificate::from_pem_bundle(certificate_authority.as_bytes()).unwrap_or_default();
            if certificates.is_empty() {
                let why = "data does not contain any valid RSA or ECDSA certificates";
                let at = path.child("certificateAuthority");
                self.read.errors.push(FieldError::invalid(&at, "<omitted>", why));
            }
        }
        if !text(self, "egressSelectorType").is_empty() {
            let why = "egress selector is not supported: this server has none";
            let at = path.child("egressSelectorType");
            self.read.errors.push(FieldError::invalid(&at, fields["egressSelectorType"].clone(), why));
        }
        let discovery_url = Some(discovery_url).filter(|url| !url.is_empty());
        Some((IssuerConfig { url, discovery_url, certificate_authority }, audiences))
    }

    fn issuer_url(&mut self, path: &FieldPath, url: &str) {
        if url.is_empty() {
            self.read.errors.push(FieldError::required(path, ""));
            return;
        }
        if [ISSUER, LEGACY_ISSUER].contains(&url) {
            let why = format!("URL must not overlap with disallowed issuers: [{ISSUER}]");
            self.read.errors.push(FieldError::invalid(path, url, why));
        }
        self.url(path, url);
    }

    fn discovery_url(&mut self, path: &FieldPath, issuer: &str, url: &str) {
        if url.is_empty() {
            return;
        }
        if !issuer.is_empty() && issuer.trim_end_matches('/') == url.trim_end_matches('/') {
            self.read.errors.push(FieldError::invalid(path, url, "discoveryURL must be different from URL"));
        }
        self.url(path, url);
    }

    fn url(&mut self, path: &FieldPath, text: &str) {
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => {
                let why = format!("parse {}: {error}", go_quote(text));
                self.read.errors.push(FieldError::invalid(path, text, why));
                return;
            }
        };
        for (is_wrong, why) in [
            (url.scheme() != "https", "URL scheme must be https"),
            (!url.username().is_empty() || url.password().is_some(), "URL must not contain a username or password"),
            (url.query().is_some_and(|query| !query.is_empty()), "URL must not contain a query"),
            (url.fragment().is_some_and(|fragment| !fragment.is_empty()), "URL must not contain a fragment"),
        ] {
            if is_wrong {
                self.read.errors.push(FieldError::invalid(path, text, why));
            }
        }
    }

    fn audiences(&mut self, issuer: &FieldPath, fields: &Map<String, Value>) -> Vec<String> {
        let audiences = self.read.texts(issuer, fields, "audiences");
        let path = issuer.child("audiences");
        if audiences.is_empty() {
            self.read.errors.push(FieldError::required(&path, format!("at least one {path} is required")));
            return audiences;
        }
        for (at, audience) in audiences.iter().enumerate() {
            if audience.is_empty() {
                self.read.errors.push(FieldError::required(&path.index(at), ""));
            }
            if audiences[..at].contains(audience) {
                self.read.errors.push(FieldError::duplicate(&path.index(at), audience.as_str()));
            }
        }
        let path = issuer.child("audienceMatchPolicy");
        let policy = self.read.text(&path, fields.get("audienceMatchPolicy"));
        let why = match audiences.len() {
            1 if policy.is_empty() => None,
            1 => Some("audienceMatchPolicy must be empty or MatchAny for single audience"),
            _ => Some("audienceMatchPolicy must be MatchAny for multiple audiences"),
        };
        if let Some(why) = why.filter(|_| policy != MATCH_ANY) {
            self.read.errors.push(FieldError::invalid(&path, policy, why));
        }
        audiences
    }
}

#[cfg(test)]
mod tests;

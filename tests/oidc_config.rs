//! Servers that trust issuers, and what they say about tokens.

use std::path::PathBuf;

use anyhow::{Context, Result};
use croft_testkit::{Croft, StoreKind, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::oidc_issuer::Issuer;

const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A configuration in a file.
#[derive(Debug)]
pub struct Config {
    path: PathBuf,
    _dir: TempDir,
}

impl Config {
    pub fn new(jwt: &[Value], anonymous: &Value) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Self { path: dir.path().join("authentication.yaml"), _dir: dir };
        config.write(&document(jwt, anonymous));
        config
    }

    /// Replaces it at once, as a careful administrator does.
    pub fn write(&self, text: &str) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, text).expect("the file is written");
        std::fs::rename(&new, &self.path).expect("the file is replaced");
    }

    pub async fn start(&self) -> Croft {
        let option = format!("--authentication-config={}", self.path.display());
        Croft::start_with(StoreKind::Embedded, &[&option]).await.expect("the server starts")
    }
}

/// The text of a configuration.
pub fn document(jwt: &[Value], anonymous: &Value) -> String {
    let mut document = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"});
    document["jwt"] = json!(jwt);
    if !anonymous.is_null() {
        document["anonymous"] = anonymous.clone();
    }
    document.to_string()
}

/// Names and groups of the issuer as they are, below a prefix.
pub fn plainly(issuer: &Issuer) -> Value {
    json!({"issuer": issuer.described(), "claimMappings": {
        "username": {"claim": "sub", "prefix": "corp:"}, "groups": {"claim": "groups", "prefix": "corp:"}}})
}

/// The code that somebody with this token is answered with.
pub async fn code(server: &Croft, token: &str) -> u16 {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    server.bearer(token).expect("a client").post(SELF, &review).await.expect("an answer").status
}

/// Who the server says that the owner of a token is.
pub async fn whoami(server: &Croft, token: &str) -> Result<Value> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = server.bearer(token)?.post(SELF, &review).await?.ok()?;
    Ok(answer["status"]["userInfo"].clone())
}

/// Waits until the keys have been fetched.
pub async fn known(server: &Croft, issuer: &Issuer) {
    eventually("the issuer is known", async || whoami(server, &issuer.token("early", &json!({}))).await.map(drop))
        .await;
}

/// Waits until these words are in the server's log.
pub async fn logged(server: &Croft, words: &str) {
    eventually("it is in the log", async || {
        let log = std::fs::read_to_string(server.data_dir().join("test.log")).unwrap_or_default();
        if log.contains(words) { Ok(()) } else { Err(format!("no {words:?} in\n{}", server.process().log_tail(30))) }
    })
    .await;
}

/// The line of a metric with a label.
pub async fn metric(server: &Croft, name: &str, label: &str) -> Result<String> {
    let text = server.client()?.get("/metrics").await?.text();
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
    Ok(line.with_context(|| format!("no {name} with {label}"))?.to_owned())
}

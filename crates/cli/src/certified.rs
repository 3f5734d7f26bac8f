//! A client certificate for a user, by way of a request that the admin approves: the key is made here and stays here.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use croft_pki::kubeconfig::Credentials;
use croft_pki::signing_request;
use serde_json::{Value, json};

use crate::client::{Client, Kind};

const REQUESTS: Kind = Kind { prefix: "/apis/certificates.k8s.io/v1", plural: "certificatesigningrequests" };
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// What the server signs at the least, and at the most.
const LEAST: Duration = Duration::from_mins(10);
const MOST: Duration = Duration::from_hours(365 * 24);
const DEFAULT: Duration = Duration::from_hours(1);
/// How long the server may take to sign, and how often it is asked.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A certificate that makes sense, and has yet to be asked for.
pub(crate) struct Certificate<'a> {
    user: &'a str,
    groups: &'a [String],
    lifetime: Duration,
}

impl<'a> Certificate<'a> {
    pub(crate) fn new(user: &'a str, groups: &'a [String], lifetime: Option<Duration>) -> anyhow::Result<Self> {
        if user.is_empty() || user.starts_with("system:") {
            bail!("{user:?} cannot be the user of a certificate");
        }
        if groups.iter().any(|group| group == "system:masters") {
            bail!(
                "the group system:masters is not given away by certificates; see \"croft kubeconfig\" without --user"
            );
        }
        let lifetime = lifetime.unwrap_or(DEFAULT);
        if lifetime < LEAST || lifetime > MOST {
            bail!("--duration: a certificate lasts from 10m to 365d");
        }
        Ok(Self { user, groups, lifetime })
    }

    pub(crate) async fn create(&self, client: &Client) -> anyhow::Result<Credentials> {
        let (request, key_pem) = signing_request::make(self.user, self.groups)?;
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "croft-"},
            "spec": {
                "request": BASE64_STANDARD.encode(request), "signerName": SIGNER, "usages": ["client auth"],
                "expirationSeconds": self.lifetime.as_secs(),
            },
        });
        let made = client.create(&REQUESTS.all(""), &object).await.context("cannot ask for a certificate")?;
        let path = REQUESTS.one("", made["metadata"]["name"].as_str().unwrap_or_default())?;
        let signed = approve(client, &path).await;
        // It has served its purpose; should this fail, the server removes it within the hour.
        let _ = client.delete(&path).await;
        Ok(Credentials::Certificate { cert_pem: signed?, key_pem })
    }
}

async fn approve(client: &Client, path: &str) -> anyhow::Result<String> {
    let approved = json!({"type": "Approved", "status": "True", "reason": "CroftKubeconfig",
        "message": "asked for and approved by the admin with croft kubeconfig"});
    let patch = json!({"status": {"conditions": [approved]}});
    client.merge(&format!("{path}/approval"), &patch).await.context("cannot approve the certificate")?;
    let signed = async {
        loop {
            let request = client.get(path).await?;
            if let Some(certificate) = request["status"]["certificate"].as_str() {
                return Ok(String::from_utf8(BASE64_STANDARD.decode(certificate)?)?);
            }
            let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if let Some(failed) = conditions.iter().find(|condition| condition["type"] == "Failed") {
                bail!("the server does not sign it: {}", failed["message"].as_str().unwrap_or_default());
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(PATIENCE, signed).await.context("the server has not signed the certificate in time")?
}

/// A kubeconfig whose user is asked for the password when it is used, see `croft credential`.
pub(crate) fn login_kubeconfig(server: &str, ca_pem: &str, user: &str) -> anyhow::Result<String> {
    let context = format!("{user}@croft");
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "croft", "args": ["credential", "--user", user],
        "interactiveMode": "IfAvailable", "provideClusterInfo": true,
        "installHint": "the program croft logs in to this cluster; put it where the shell finds it",
    });
    let document: Value = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "clusters": [{"name": "croft", "cluster": {
            "server": server, "certificate-authority-data": BASE64_STANDARD.encode(ca_pem),
        }}],
        "contexts": [{"name": context, "context": {"cluster": "croft", "user": user}}],
        "users": [{"name": user, "user": {"exec": exec}}],
    });
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&document, options).context("cannot write the kubeconfig")
}

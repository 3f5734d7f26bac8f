//! Whose tokens are good here: a file that says all, or kube-apiserver's flags for one issuer.

use std::path::Path;

use anyhow::{Context, bail};
use croft_apiserver::AuthenticationConfig;
use serde_json::{Value, json};

use crate::options::ServerOptions;

pub(crate) fn resolve(options: &ServerOptions) -> anyhow::Result<AuthenticationConfig> {
    let given = given(options);
    match &options.authentication_config {
        Some(_) if !given.is_empty() => {
            bail!("--authentication-config and {} are mutually exclusive: the file can say it too", given.join(", "))
        }
        Some(path) => {
            let config = AuthenticationConfig::read(path);
            config.with_context(|| format!("--authentication-config: {}", path.display()))
        }
        None if given.is_empty() => Ok(AuthenticationConfig::default()),
        None => issuer(options),
    }
}

/// The flags that were given.
fn given(options: &ServerOptions) -> Vec<&'static str> {
    let flags = [
        ("--oidc-issuer-url", options.oidc_issuer_url.is_some()),
        ("--oidc-client-id", options.oidc_client_id.is_some()),
        ("--oidc-ca-file", options.oidc_ca_file.is_some()),
        ("--oidc-username-claim", options.oidc_username_claim.is_some()),
        ("--oidc-username-prefix", options.oidc_username_prefix.is_some()),
        ("--oidc-groups-claim", options.oidc_groups_claim.is_some()),
        ("--oidc-groups-prefix", options.oidc_groups_prefix.is_some()),
        ("--oidc-required-claim", !options.oidc_required_claim.is_empty()),
        ("--oidc-signing-algs", !options.oidc_signing_algs.is_empty()),
    ];
    flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
}

fn issuer(options: &ServerOptions) -> anyhow::Result<AuthenticationConfig> {
    let (Some(url), Some(client)) = (&options.oidc_issuer_url, &options.oidc_client_id) else {
        bail!("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set");
    };
    let claim = options.oidc_username_claim.as_deref().unwrap_or("sub");
    let prefix = match options.oidc_username_prefix.as_deref().unwrap_or_default() {
        "-" => String::new(),
        // Names of two issuers are not to be taken for each other; addresses are their owners' everywhere.
        "" if claim != "email" => format!("{url}#"),
        prefix => prefix.to_owned(),
    };
    let mut jwt = json!({
        "issuer": {"url": url, "audiences": [client]},
        "claimMappings": {"username": {"claim": claim, "prefix": prefix}},
    });
    if let Some(claim) = options.oidc_groups_claim.as_deref().filter(|claim| !claim.is_empty()) {
        let prefix = options.oidc_groups_prefix.as_deref().unwrap_or_default();
        jwt["claimMappings"]["groups"] = json!({"claim": claim, "prefix": prefix});
    }
    if let Some(path) = &options.oidc_ca_file {
        jwt["issuer"]["certificateAuthority"] = json!(certificates(path)?);
    }
    let required = options.oidc_required_claim.iter().map(|text| required(text));
    jwt["claimValidationRules"] = Value::Array(required.collect::<anyhow::Result<_>>()?);
    let default = ["RS256".to_owned()];
    let algorithms = if options.oidc_signing_algs.is_empty() { &default[..] } else { &options.oidc_signing_algs };
    AuthenticationConfig::of_flags(&jwt, algorithms).context("--oidc-…")
}

fn certificates(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--oidc-ca-file: {}", path.display()))?;
    // An empty one would mean those that the machine trusts.
    if text.trim().is_empty() {
        bail!("--oidc-ca-file: {} is empty", path.display());
    }
    Ok(text)
}

fn required(text: &str) -> anyhow::Result<Value> {
    let (claim, value) = text.split_once('=').filter(|(claim, _)| !claim.is_empty()).with_context(|| {
        format!("--oidc-required-claim: {text:?} is not a claim and its value, such as hd=example.org")
    })?;
    Ok(json!({"claim": claim, "requiredValue": value}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut ServerOptions)) -> anyhow::Result<AuthenticationConfig> {
        let mut options = ServerOptions::default();
        change(&mut options);
        resolve(&options)
    }

    fn flags(change: impl FnOnce(&mut ServerOptions)) -> anyhow::Result<AuthenticationConfig> {
        with(|options| {
            options.oidc_issuer_url = Some("https://issuer.example".to_owned());
            options.oidc_client_id = Some("croft".to_owned());
            change(options);
        })
    }

    #[test]
    fn one_issuer_is_described_by_flags() {
        let config = format!("{:?}", flags(|_| {}).unwrap());
        assert!(config.contains(r#"name: "sub", prefix: "https://issuer.example#""#), "{config}");
        assert!(config.contains("groups: None") && config.contains("[Rs256]"), "{config}");
        let config = flags(|options| {
            options.oidc_username_claim = Some("email".to_owned());
            options.oidc_groups_claim = Some("groups".to_owned());
            options.oidc_groups_prefix = Some("corp:".to_owned());
            options.oidc_required_claim = vec!["hd=a=b".to_owned()];
            options.oidc_signing_algs = vec!["ES256".to_owned(), "EdDSA".to_owned()];
        });
        let config = format!("{:?}", config.unwrap());
        for expected in
            [r#"name: "email", prefix: """#, r#"name: "groups", prefix: "corp:""#, r#"("hd", "a=b")"#, "[Es256, EdDsa]"]
        {
            assert!(config.contains(expected), "{expected}: {config}");
        }
        let config = flags(|options| options.oidc_username_prefix = Some("-".to_owned())).unwrap();
        assert!(format!("{config:?}").contains(r#"name: "sub", prefix: """#));
    }

    #[test]
    fn mistakes_are_explained() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("auth.yaml");
        std::fs::write(&file, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{}]\n")
            .unwrap();
        for (config, expected) in [
            (
                with(|o| o.authentication_config = Some("/nonexistent".into())),
                "/nonexistent: cannot be read: No such file",
            ),
            (with(|o| o.authentication_config = Some(file.clone())), "auth.yaml: [jwt[0].issuer.url: Required value"),
            (
                flags(|o| o.authentication_config = Some(file.clone())),
                "--authentication-config and --oidc-issuer-url, --oidc-client-id are mutually exclusive",
            ),
            (with(|o| o.oidc_client_id = Some("a".to_owned())), "must be specified together"),
            (with(|o| o.oidc_groups_claim = Some("a".to_owned())), "must be specified together"),
            (flags(|o| o.oidc_issuer_url = Some("http://a".to_owned())), "URL scheme must be https"),
            (flags(|o| o.oidc_signing_algs = vec!["none".to_owned()]), "oidc: unsupported signing alg: \"none\""),
            (flags(|o| o.oidc_signing_algs = vec!["HS256".to_owned()]), "oidc: unsupported signing alg: \"HS256\""),
            (flags(|o| o.oidc_required_claim = vec!["hd".to_owned()]), "--oidc-required-claim: \"hd\" is not a claim"),
            (flags(|o| o.oidc_ca_file = Some("/nonexistent".into())), "--oidc-ca-file: /nonexistent"),
            (flags(|o| o.oidc_ca_file = Some(file.clone())), "does not contain any valid RSA or ECDSA certificates"),
        ] {
            let error = format!("{:#}", config.unwrap_err());
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}

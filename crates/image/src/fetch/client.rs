//! The HTTP client: proxy, certificates, redirects, credentials.

use std::fmt;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, NoProxy, Url};

use crate::error::ImportError;

const CONNECT: Duration = Duration::from_secs(20);
const REDIRECTS: usize = 10;
const AGENT: &str = concat!("croft/", env!("CARGO_PKG_VERSION"));

/// Marks the refusal of a redirect.
const DOWNGRADE: &str = "redirected from https to http";

/// Proxies by the scheme of the URL; empty for none. The environment's are not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    pub http: String,
    pub https: String,
    /// Hosts, domains and networks that are reached directly, separated by commas.
    pub none_for: String,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).field("password", &"***").finish()
    }
}

/// How to reach servers.
#[derive(Clone, Debug)]
pub struct Transport {
    pub proxy: Proxy,
    /// Trusted beside what the host trusts.
    pub ca_pem: String,
    /// Nothing may come for this long.
    pub stall: Duration,
    pub credentials: Option<Credentials>,
    /// `Name: value` each, sent along.
    pub headers: Vec<String>,
    /// Does not look at certificates. For registries that are configured so.
    pub is_insecure: bool,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            proxy: Proxy::default(),
            ca_pem: String::new(),
            stall: Duration::from_mins(1),
            credentials: None,
            headers: Vec::new(),
            is_insecure: false,
        }
    }
}

impl Transport {
    /// `may_downgrade`: what comes is checked by other means, so a redirect from https to http does no harm.
    pub(crate) fn client(&self, may_downgrade: bool) -> Result<Client, ImportError> {
        let setup = |why| move |source| ImportError::Setup { why, source };
        let mut builder = Client::builder().user_agent(AGENT).connect_timeout(CONNECT).no_proxy();
        builder =
            builder.redirect(redirects(may_downgrade)).referer(false).tls_danger_accept_invalid_certs(self.is_insecure);
        let no_proxy = NoProxy::from_string(&self.proxy.none_for);
        for (url, make) in
            [(&self.proxy.http, reqwest::Proxy::http::<&str> as fn(_) -> _), (&self.proxy.https, reqwest::Proxy::https)]
        {
            if !url.is_empty() {
                let proxy = make(url.as_str()).map_err(setup("the proxy is not a URL"))?;
                builder = builder.proxy(proxy.no_proxy(no_proxy.clone()));
            }
        }
        let certificates = Certificate::from_pem_bundle(self.ca_pem.as_bytes());
        let certificates = certificates.map_err(setup("the additional certificates are not PEM"))?;
        if !certificates.is_empty() {
            builder = builder.tls_certs_merge(certificates);
        }
        builder.build().map_err(setup("the additional certificates cannot be used"))
    }

    /// Credentials and headers of the user's.
    pub(crate) fn extra_headers(&self) -> Result<HeaderMap, ImportError> {
        use base64::Engine;
        let mut headers = HeaderMap::new();
        for header in &self.headers {
            let parsed = header.split_once(':').and_then(|(name, value)| {
                Some((name.trim().parse::<HeaderName>().ok()?, value.trim().parse::<HeaderValue>().ok()?))
            });
            let Some((name, mut value)) = parsed else {
                return Err(ImportError::Url {
                    url: "an extra header".to_owned(),
                    why: "it is not `Name: value`".to_owned(),
                });
            };
            value.set_sensitive(true);
            headers.append(name, value);
        }
        if let Some(Credentials { user, password }) = &self.credentials {
            let basic = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {basic}")) {
                value.set_sensitive(true);
                headers.insert(reqwest::header::AUTHORIZATION, value);
            }
        }
        Ok(headers)
    }
}

fn redirects(may_downgrade: bool) -> Policy {
    Policy::custom(move |attempt| {
        let was_https = attempt.previous().iter().any(|url| url.scheme() == "https");
        if was_https && attempt.url().scheme() != "https" && !may_downgrade {
            return attempt.error(DOWNGRADE);
        }
        if attempt.previous().len() > REDIRECTS {
            return attempt.error("redirected too often");
        }
        attempt.follow()
    })
}

pub(crate) fn unreachable(url: &Url, error: reqwest::Error) -> ImportError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if error.to_string() == DOWNGRADE {
            return ImportError::Downgraded { url: shown(url) };
        }
        cause = error.source();
    }
    ImportError::Unreachable { url: shown(url), source: error.without_url() }
}

/// Without passwords, and without what may be one.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that have no host, which were refused.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

pub(crate) fn parse(text: &str) -> Result<Url, ImportError> {
    let refused = |why: &str| ImportError::Url { url: text.chars().take(200).collect(), why: why.to_owned() };
    let url = Url::parse(text.trim()).map_err(|error| refused(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("only http and https are supported"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(refused("it has no host"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_is_downloaded_and_secrets_are_not_shown() {
        for (text, expected) in [
            ("https://user:secret@host/a.img?token=x#y", Some("https://host/a.img")),
            (" http://host:8080/a ", Some("http://host:8080/a")),
            ("file:///etc/passwd", None),
            ("ftp://host/a", None),
            ("nbd://host/a", None),
            ("/etc/passwd", None),
            ("http://", None),
        ] {
            assert_eq!(parse(text).ok().map(|url| shown(&url)).as_deref(), expected, "{text}");
        }
    }
}

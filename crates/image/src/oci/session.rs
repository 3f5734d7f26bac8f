//! A conversation with a registry about one repository: <https://distribution.github.io/distribution/spec/api/>.

use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;

use super::reference::Reference;
use super::{Access, PullError};
use crate::error::ImportError;
use crate::fetch::{Transport, shown, unreachable};

const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(300);
/// Manifests and tokens are small; a registry that takes longer is ill.
const ANSWER: Duration = Duration::from_secs(30);
/// A server without TLS answers something else at once, or never.
const GREETING: Duration = Duration::from_secs(3);
const LONGEST_TOKEN: usize = 1 << 20;
const LONGEST_COMPLAINT: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    transport: Transport,
    /// `https://host/v2/<repository>/`
    base: Url,
    name: String,
    authorization: Option<HeaderValue>,
}

impl Session {
    pub(super) async fn open(reference: &Reference, access: &Access) -> Result<Self, PullError> {
        let host = reference.host();
        let is_trusted = is_loopback(host) || access.insecure_registries.iter().any(|it| it == host);
        let transport = Transport { is_insecure: is_trusted, ..access.transport.clone() };
        let client = transport.client(true)?;
        let scheme = if is_trusted && !speaks_tls(&client, host).await { "http" } else { "https" };
        let base = format!("{scheme}://{host}/v2/{}/", reference.repository);
        let base = Url::parse(&base).map_err(|_| PullError::Protocol(format!("{host} is not a host")))?;
        Ok(Self { client, transport, base, name: reference.to_string(), authorization: None })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn stall(&self) -> Duration {
        self.transport.stall
    }

    pub(super) fn blob(&self, digest: &str) -> Result<Url, PullError> {
        self.base.join(&format!("blobs/{digest}")).map_err(|_| PullError::Protocol("a digest that is none".to_owned()))
    }

    /// With the authorization that was found to be needed.
    pub(super) fn headers(&self, mut headers: HeaderMap) -> HeaderMap {
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers
    }

    /// A small document.
    pub(super) async fn get(&mut self, path: &str, accept: &'static str, longest: usize) -> Result<Bytes, PullError> {
        let url = self.base.join(path).map_err(|_| PullError::Protocol("a path that is none".to_owned()))?;
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
        let mut response = self.send(&url, self.headers(headers.clone())).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            self.authorize(&response).await?;
            response = self.send(&url, self.headers(headers)).await?;
        }
        match response.status() {
            StatusCode::OK => self.body(response, longest).await,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(PullError::Unauthorized { registry: self.host().to_owned() })
            }
            StatusCode::NOT_FOUND => Err(PullError::NotFound(self.name.clone())),
            status => {
                let message = complaint(&self.body(response, LONGEST_COMPLAINT).await.unwrap_or_default());
                Err(PullError::Refused { status: status.to_string(), message })
            }
        }
    }

    fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// Tries again when the registry is not reached or in trouble.
    async fn send(&self, url: &Url, headers: HeaderMap) -> Result<Response, PullError> {
        let (mut attempt, mut pause) = (1, FIRST_PAUSE);
        loop {
            let request = self.client.get(url.clone()).headers(headers.clone()).send();
            let sent = match tokio::time::timeout(ANSWER, request).await {
                Ok(sent) => sent.map_err(|error| unreachable(url, error)),
                Err(_) => Err(ImportError::Stalled { from: shown(url), after: ANSWER }),
            };
            match sent {
                Ok(response) if attempt == ATTEMPTS || !is_trouble(response.status()) => return Ok(response),
                Err(source) if attempt == ATTEMPTS => {
                    return Err(PullError::Unreachable { registry: self.host().to_owned(), source });
                }
                _ => tokio::time::sleep(pause).await,
            }
            (attempt, pause) = (attempt + 1, pause * 2);
        }
    }

    async fn body(&self, mut response: Response, longest: usize) -> Result<Bytes, PullError> {
        let mut body = BytesMut::new();
        loop {
            let chunk = match tokio::time::timeout(ANSWER, response.chunk()).await {
                Ok(Ok(chunk)) => chunk,
                Ok(Err(error)) => {
                    let source = unreachable(&self.base, error);
                    return Err(PullError::Unreachable { registry: self.host().to_owned(), source });
                }
                Err(_) => return Err(ImportError::Stalled { from: self.host().to_owned(), after: ANSWER }.into()),
            };
            let Some(chunk) = chunk else { return Ok(body.freeze()) };
            body.extend_from_slice(&chunk);
            if body.len() > longest {
                return Err(PullError::Protocol("a document that is too long".to_owned()));
            }
        }
    }

    /// Does what the refusal asks for: a token from somewhere, or name and password right here.
    async fn authorize(&mut self, refusal: &Response) -> Result<(), PullError> {
        let unauthorized = || PullError::Unauthorized { registry: self.host().to_owned() };
        let challenge = refusal.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let challenge = Challenge::parse(challenge.unwrap_or_default()).ok_or_else(unauthorized)?;
        let mut value = match challenge {
            Challenge::Basic => self.transport.extra_headers()?.remove(AUTHORIZATION).ok_or_else(unauthorized)?,
            Challenge::Bearer { realm, query } => self.token(&realm, &query).await?,
        };
        value.set_sensitive(true);
        self.authorization = Some(value);
        Ok(())
    }

    async fn token(&self, realm: &str, query: &[(&str, String)]) -> Result<HeaderValue, PullError> {
        let url = Url::parse_with_params(realm, query).ok();
        // Credentials do not leave by plain HTTP unless the registry itself is spoken to that way.
        let url = url.filter(|url| url.scheme() == "https" || url.scheme() == self.base.scheme());
        let url =
            url.ok_or_else(|| PullError::Protocol("tokens are to be had at a place that is not safe".to_owned()))?;
        let response = self.send(&url, self.transport.extra_headers()?).await?;
        if !response.status().is_success() {
            return Err(PullError::Unauthorized { registry: self.host().to_owned() });
        }
        granted(&self.body(response, LONGEST_TOKEN).await?)
    }
}

/// The header with the token of an answer.
pub(super) fn granted(body: &[u8]) -> Result<HeaderValue, PullError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Answer {
        token: String,
        access_token: String,
    }
    let answer: Answer = serde_json::from_slice(body).unwrap_or_default();
    let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    value.map_err(|_| PullError::Protocol("a token that is none".to_owned()))
}

fn is_trouble(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// The first message of the registry's errors.
fn complaint(body: &[u8]) -> String {
    let document: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = document["errors"][0]["message"].as_str().unwrap_or("no reason given");
    message.chars().take(300).collect()
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

async fn speaks_tls(client: &Client, host: &str) -> bool {
    let request = client.get(format!("https://{host}/v2/")).send();
    tokio::time::timeout(GREETING, request).await.is_ok_and(|sent| sent.is_ok())
}

#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, query: Vec<(&'static str, String)> },
}

impl Challenge {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let realm = parameter(rest, "realm")?;
        let query = ["service", "scope"].into_iter().filter_map(|name| Some((name, parameter(rest, name)?))).collect();
        Some(Self::Bearer { realm, query })
    }
}

/// Whether a challenge is one. For `croft-fuzz`.
pub(super) fn understood(text: &str) -> bool {
    Challenge::parse(text).is_some()
}

/// `name="value"`, where the value may have commas.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_once('"')?;
        if key.trim_matches([' ', ',']).eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_understood() {
        let text = r#"Bearer realm="https://auth.io/token",service="registry.io",scope="repository:a/b:pull,push""#;
        let query = vec![("service", "registry.io".to_owned()), ("scope", "repository:a/b:pull,push".to_owned())];
        let expected = Challenge::Bearer { realm: "https://auth.io/token".to_owned(), query };
        assert_eq!(Challenge::parse(text), Some(expected));
        assert_eq!(Challenge::parse(r#"Basic realm="x""#), Some(Challenge::Basic));
        assert_eq!(Challenge::parse("Negotiate"), None);
        assert_eq!(Challenge::parse(""), None);
    }

    #[test]
    fn only_this_host_is_loopback() {
        for (host, expected) in [
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("localhost.evil.io", false),
            ("10.0.0.1:5000", false),
            ("quay.io", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }
}

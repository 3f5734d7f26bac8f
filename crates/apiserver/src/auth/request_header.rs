//! Callers that speak for others: a proxy in front of this server that has authenticated its users already.
//!
//! Only whoever shows a certificate of the authority that was named for it is believed, and only under one of the names
//! that were allowed.

use croft_pki::front_proxy::ProxyAuthority;
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use crate::request::percent_decode;
use crate::user::UserInfo;

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// Whether such a header says something about whom a proxy speaks for.
pub(super) fn is_about_user(name: &HeaderName) -> bool {
    [USER, UID, GROUP].contains(&name.as_str()) || name.as_str().starts_with(EXTRA)
}

/// Who may speak for others.
#[derive(Clone, Debug)]
pub struct FrontProxies {
    pub authority: ProxyAuthority,
    /// Empty for any name.
    pub allowed_names: Vec<String>,
}

impl FrontProxies {
    /// `None` if the caller is no such proxy, or names nobody.
    pub(super) fn user(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Option<UserInfo>, String> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
        if chain.is_empty() || text(USER).is_empty() {
            return Ok(None);
        }
        // A certificate of another authority is for another authenticator to judge.
        let Ok(proxy) = self.authority.verify(chain, now) else { return Ok(None) };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&proxy.user) {
            return Err(format!("x509: subject with cn={} is not in the allowed list", proxy.user));
        }
        let all = |name: &HeaderName| -> Vec<String> {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
        };
        let mut user = UserInfo::new(text(USER), &[]);
        text(UID).clone_into(&mut user.uid);
        user.groups = all(&HeaderName::from_static(GROUP));
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
            user.extra.insert(percent_decode(key).into_owned(), all(name));
        }
        Ok(Some(user))
    }
}

#[cfg(test)]
mod tests {
    use croft_pki::front_proxy::FrontProxy;
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_proxy_may_say_who_asks() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = Timestamp::now();
        let front = FrontProxy::load_or_create(dir.path(), now).unwrap();
        let stranger = FrontProxy::load_or_create(other.path(), now).unwrap();
        let authority = ProxyAuthority::from_pem(front.ca_pem()).unwrap();
        let proxies = |names: &[&str]| FrontProxies {
            authority: authority.clone(),
            allowed_names: names.iter().map(ToString::to_string).collect(),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in
            [(USER, "jane"), (GROUP, "a"), (GROUP, "b"), ("x-remote-extra-example.com%2fkey", "v"), (UID, "7")]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let chain = [front.identity(now).unwrap().cert];
        let user = proxies(&["front-proxy-client"]).user(&headers, &chain, now).unwrap().unwrap();
        assert_eq!(
            (user.name.as_str(), user.uid.as_str(), user.groups.as_slice()),
            ("jane", "7", ["a".to_owned(), "b".to_owned()].as_slice())
        );
        assert_eq!(user.extra["example.com/key"], ["v"]);
        assert!(proxies(&["somebody"]).user(&headers, &chain, now).is_err());
        assert!(proxies(&[]).user(&headers, &chain, now).unwrap().is_some());
        assert_eq!(proxies(&[]).user(&headers, &[], now), Ok(None), "headers alone say nothing");
        assert_eq!(proxies(&[]).user(&headers, &[stranger.identity(now).unwrap().cert], now), Ok(None));
        assert_eq!(proxies(&[]).user(&HeaderMap::new(), &chain, now), Ok(None));
    }
}

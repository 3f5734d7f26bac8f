//! Who sent a request: by client certificate, bearer token, session cookie or password; anonymous without any.
//!
//! As upstream's union of authenticators, each kind of credentials is tried in turn and the first that is right
//! counts. Credentials that are wrong do not make a caller anonymous: if nothing else is right, the answer is 401.

pub(crate) mod accounts;
mod bearer;
pub(crate) mod costly;
pub(crate) mod lockouts;
mod login;
mod memo;
pub(crate) mod oidc;
mod passwords;
mod patience;
pub(crate) mod revoked;
pub(crate) mod second_factor;
pub(crate) mod validity;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use croft_meta::{ApiError, Chain};
use croft_pki::client_cert::Marks;
use croft_pki::{BearerToken, Ca, ClientCertError, TokenError, TokenSigner, VerifiedToken, service_account::ISSUER};
use http::{HeaderMap, HeaderName, header};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use self::accounts::TokenOwners;
use self::bearer::BearerTokens;
use self::costly::Costly;
use self::lockouts::{Lockouts, LoginLimits};
use self::login::password_alone;
pub(crate) use self::login::{Code, Credentials, LoginError, Proven, Standing};
use self::memo::Memo;
use self::oidc::Issuers;
use self::passwords::Passwords;
pub(crate) use self::passwords::{LONGEST, LocalUser, secret_text};
use self::revoked::Revoked;
use super::request_header::{self, FrontProxies};
use super::rule::go_strings;
use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use crate::cache::{Cache, Collection};
use crate::metrics::Logins;
use crate::user::UserInfo;

/// Where the Secrets of users and their tokens are.
pub(crate) const USERS_NAMESPACE: &str = "kube-system";
/// `extra` of whoever used a credential that has a name.
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// A WebSocket client in a browser cannot set headers; it passes its token as a subprotocol.
const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// The cookie that holds the token of a browser's session.
pub(crate) const SESSION_COOKIE: &str = "R_SESS";
const INVALID_TOKEN: &str = "invalid bearer token";

/// How long a checked signature need not be checked again; what it is bound to is looked up every time.
const SIGNATURE_TTL: Duration = Duration::from_secs(10);

/// A token's owner and the audiences, of those asked for, that it is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identified {
    pub(crate) user: UserInfo,
    pub(crate) audiences: Vec<String>,
}

/// Who sent a request, as far as what lasts longer than the request has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recognized {
    pub(crate) user: UserInfo,
    /// Of those who came by a password.
    pub(crate) standing: Option<Standing>,
}

impl From<UserInfo> for Recognized {
    fn from(user: UserInfo) -> Self {
        Self { user, standing: None }
    }
}

impl Recognized {
    /// The same user by the same credential. Of several in one request, another may be what counts now.
    pub(crate) fn is_still(&self, known: &Self) -> bool {
        let by = |one: &Self| one.user.extra.get(CREDENTIAL_ID).cloned();
        self.user.name == known.user.name
            && self.user.uid == known.user.uid
            && by(self) == by(known)
            && self.standing == known.standing
    }
}

#[derive(Debug)]
pub(crate) struct Authenticator {
    ca: Arc<Ca>,
    signer: Arc<TokenSigner>,
    secrets: Arc<Collection>,
    token_owners: TokenOwners,
    bearer_tokens: BearerTokens,
    passwords: Arc<Passwords>,
    pub(crate) revoked: Revoked,
    certificates: Memo<(UserInfo, Marks)>,
    signatures: Memo<VerifiedToken>,
    /// Others whose tokens are good here.
    issuers: Option<Arc<Issuers>>,
    pub(crate) front_proxies: Option<FrontProxies>,
}

impl Authenticator {
    pub(crate) fn new(
        cache: &Cache,
        ca: Arc<Ca>,
        signer: Arc<TokenSigner>,
        limits: LoginLimits,
    ) -> Result<Self, getrandom::Error> {
        Ok(Self {
            ca,
            signer,
            secrets: cache.collection("core/secrets"),
            token_owners: TokenOwners::new(cache)?,
            bearer_tokens: BearerTokens::new(cache),
            passwords: Arc::new(Passwords::new(cache, limits)?),
            revoked: Revoked::new(cache),
            certificates: Memo::new(SIGNATURE_TTL)?,
            signatures: Memo::new(SIGNATURE_TTL)?,
            issuers: None,
            front_proxies: None,
        })
    }

    #[must_use]
    pub(crate) fn trusting(self, issuers: Arc<Issuers>) -> Self {
        Self { issuers: Some(issuers), ..self }
    }

    #[must_use]
    pub(crate) fn counting(mut self, counts: Logins) -> Self {
        // Nobody else has it before the server runs.
        if let Some(passwords) = Arc::get_mut(&mut self.passwords) {
            passwords.counts = counts;
        }
        self
    }

    /// Whether a request for this path may come without credentials.
    pub(crate) fn allows_anonymous(&self, path: &str) -> bool {
        self.issuers.as_ref().is_none_or(|issuers| issuers.allows_anonymous(path))
    }

    /// Whether somebody may be recognized by a header of this name.
    pub(crate) fn is_credential(&self, name: &HeaderName) -> bool {
        [header::AUTHORIZATION, header::COOKIE, header::SEC_WEBSOCKET_PROTOCOL].contains(name)
            || (self.front_proxies.is_some() && request_header::is_about_user(name))
    }

    /// What came of [`Self::recognize`], for those who only need to know who it is.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        client_certs: Option<&[CertificateDer<'_>]>,
        address: Option<IpAddr>,
    ) -> Result<UserInfo, ApiError> {
        self.recognize(headers, client_certs, address).await.map(|known| known.user)
    }

    /// Whether somebody who was recognized once still is.
    pub(crate) async fn recognizes(
        &self,
        known: &Recognized,
        headers: &HeaderMap,
        client_certs: Option<&[CertificateDer<'_>]>,
    ) -> bool {
        // Trying the password again would count as a failure, and tell nothing while the name is locked.
        if known.standing.is_some() {
            return self.local_user(&known.user.name).map(|user| user.standing()) == known.standing;
        }
        self.recognize(headers, client_certs, None).await.is_ok_and(|now| now.is_still(known))
    }

    /// `client_certs` is the chain of the TLS connection as the client sent it, checked by nobody so far.
    pub(crate) async fn recognize(
        &self,
        headers: &HeaderMap,
        client_certs: Option<&[CertificateDer<'_>]>,
        address: Option<IpAddr>,
    ) -> Result<Recognized, ApiError> {
        let now = Timestamp::now();
        let mut failures = Vec::new();
        if let Some(proxies) = &self.front_proxies {
            match proxies.user(headers, client_certs.unwrap_or_default(), now) {
                Ok(Some(user)) => return Ok(with_group(user).into()),
                Ok(None) => {}
                Err(why) => failures.push(why),
            }
        }
        match self.by_certificate(client_certs.unwrap_or_default(), now) {
            Ok(Some(user)) => return Ok(with_group(user).into()),
            Ok(None) => {}
            Err(why) => failures.push(why),
        }
        let tokens = [
            authorization(headers, "bearer").map(Ok),
            websocket_token(headers).transpose(),
            session_token(headers).map(|token| Ok(token.to_owned())),
        ];
        for token in tokens.into_iter().flatten() {
            let identified = match token {
                Ok(token) => self.identify(&token, &[]).await,
                Err(why) => Err(why),
            };
            match identified {
                Ok(identified) => return Ok(identified.user.into()),
                Err(why) => failures.push(why),
            }
        }
        if let Some(credentials) = basic_header(headers) {
            let login = match credentials {
                Ok((user, password)) => {
                    if let Some(found) = self.by_token_pair(&user, &password, now) {
                        found.map(Recognized::from).map_err(LoginError::Wrong)
                    } else {
                        let proven = self.passwords.login(user, password, address, now).await;
                        proven.map(|proven| Recognized { user: proven.user, standing: Some(proven.standing) })
                    }
                }
                Err(why) => Err(LoginError::Wrong(why)),
            };
            match login {
                Ok(known) => return Ok(Recognized { user: with_group(known.user), ..known }),
                Err(LoginError::Wrong(why)) => failures.push(why),
                Err(LoginError::CodeNeeded) => return Err(password_alone()),
                Err(wait) => return Err(wait.refusal().unwrap_or_else(ApiError::unauthorized)),
            }
        }
        if failures.is_empty() {
            return Ok(UserInfo::anonymous().into());
        }
        tracing::info!(reason = failures.join("; "), "unable to authenticate the request");
        Err(ApiError::unauthorized())
    }

    /// Who a bearer token belongs to, as TokenReview asks; `audiences` empty means this server. The error is the text
    /// for its status.
    pub(crate) async fn identify(&self, token: &str, audiences: &[String]) -> Result<Identified, String> {
        if let Some(issuers) = &self.issuers
            && let Some(user) = issuers.identify(token, Timestamp::now()).await
        {
            // Its audiences are the issuer's affair: here it stands for somebody at this server.
            check_own_audience(audiences)?;
            let user = with_group(user.map_err(|why| invalid_token(&why))?);
            // Looked up every time, also for a token that was verified a moment ago.
            let ids = user.extra.get(CREDENTIAL_ID).into_iter().flatten();
            // Its signature was looked at already.
            let issued = || croft_pki::Jws::parse(token).ok()?.claims.get("iat")?.as_i64();
            if ids.filter_map(|id| id.strip_prefix("JTI=")).any(|id| self.revoked.has_token(id, issued)) {
                return Err(invalid_token("the token was revoked"));
            }
            return Ok(Identified { user, audiences: vec![ISSUER.to_owned()] });
        }
        self.identify_token(token, audiences)
    }

    /// The same for tokens of this server.
    pub(crate) fn identify_token(&self, token: &str, audiences: &[String]) -> Result<Identified, String> {
        self.by_token(token, audiences, Timestamp::now())
    }

    /// The local user with these credentials. Failures are counted, and too many of them make everyone wait.
    pub(crate) async fn login(&self, credentials: Credentials, address: Option<IpAddr>) -> Result<Proven, LoginError> {
        self.passwords.check(credentials, address, Timestamp::now()).await
    }

    /// A code was right, and nobody had used it before.
    pub(crate) fn code_was_new(&self) {
        self.passwords.let_in();
    }

    /// A code was right, but somebody has used it since: that counts as wrong.
    pub(crate) fn code_was_used(&self, name: &str, address: Option<IpAddr>) -> LoginError {
        self.passwords.was_used(name, address, Timestamp::now())
    }

    /// Where all hashing of passwords and codes takes its turn.
    pub(crate) fn hashing(&self) -> &Costly {
        &self.passwords.hashing
    }

    pub(crate) fn lockouts(&self) -> &Lockouts {
        &self.passwords.lockouts
    }

    pub(crate) fn local_user(&self, name: &str) -> Option<LocalUser> {
        passwords::local_user(&self.secrets, name)
    }

    pub(crate) fn local_users(&self) -> Vec<LocalUser> {
        passwords::local_users(&self.secrets)
    }

    /// A token as user and password: its name before the colon, its secret after it.
    fn by_token_pair(&self, user: &str, password: &str, now: Timestamp) -> Option<Result<UserInfo, String>> {
        let token = BearerToken::parse(&format!("{user}:{password}"))?;
        Some(self.by_bearer_token(&token, &[], now).map(|identified| identified.user))
    }

    fn by_certificate(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Option<UserInfo>, String> {
        if chain.is_empty() {
            return Ok(None);
        }
        let parts: Vec<&[u8]> = chain.iter().map(AsRef::as_ref).collect();
        let digest = self.certificates.digest(&parts);
        if let Some((user, marks)) = self.certificates.get(&digest, now) {
            return self.unless_revoked(user, &marks);
        }
        let identity = match self.ca.verify_client(chain, now) {
            Ok(identity) => identity,
            Err(ClientCertError::NoCommonName) => return Ok(None),
            Err(error) => return Err(Chain(&error).to_string()),
        };
        let mut user =
            UserInfo { name: identity.user, uid: identity.uid, groups: identity.groups, ..UserInfo::default() };
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![identity.credential_id]);
        self.certificates.put(digest, (user.clone(), identity.marks.clone()), now);
        self.unless_revoked(user, &identity.marks)
    }

    /// What a certificate says is remembered for a while; whether it was revoked is looked up every time.
    fn unless_revoked(&self, user: UserInfo, marks: &Marks) -> Result<Option<UserInfo>, String> {
        if self.revoked.has_certificate(marks) {
            return Err(format!("the certificate {} of {:?} was revoked", marks.fingerprint, user.name));
        }
        Ok(Some(user))
    }

    fn by_token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Identified, String> {
        let identified = match BearerToken::parse(token) {
            Some(token) => self.by_bearer_token(&token, audiences, now)?,
            None => self.by_service_account_token(token, audiences, now)?,
        };
        Ok(Identified { user: with_group(identified.user), ..identified })
    }

    fn by_bearer_token(&self, token: &BearerToken, audiences: &[String], now: Timestamp) -> Result<Identified, String> {
        check_own_audience(audiences)?;
        let user = self.bearer_tokens.owner(token, now).map_err(|why| invalid_token(&why))?;
        Ok(Identified { user, audiences: vec![ISSUER.to_owned()] })
    }

    fn by_service_account_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Identified, String> {
        let verified = self.verify_signature(token, audiences, now)?;
        if self.revoked.has_token(&verified.id, || verified.issued) {
            return Err(invalid_token("the token was revoked"));
        }
        let user = self.token_owners.user_of(token, &verified, now).map_err(|why| invalid_token(&why))?;
        Ok(Identified { user, audiences: verified.audiences })
    }

    fn verify_signature(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<VerifiedToken, String> {
        let mut parts = vec![token.as_bytes()];
        parts.extend(audiences.iter().map(String::as_bytes));
        let digest = self.signatures.digest(&parts);
        if let Some(verified) = self.signatures.get(&digest, now) {
            return Ok(verified);
        }
        let verified = self.signer.verify(token, audiences, now).map_err(|error| match error {
            TokenError::NotOurs => INVALID_TOKEN.to_owned(),
            TokenError::WrongAudience { token, wanted } => invalid_token(&format!(
                "token audiences {} is invalid for the target audiences {}",
                go_strings(&token),
                go_strings(&wanted)
            )),
            other => invalid_token(&other.to_string()),
        })?;
        self.signatures.put(digest, verified.clone(), now);
        Ok(verified)
    }
}

/// Tokens that name no audience of their own are for this server.
fn check_own_audience(audiences: &[String]) -> Result<(), String> {
    let is_here = audiences.is_empty() || audiences.iter().any(|audience| audience == ISSUER);
    if is_here { Ok(()) } else { Err(INVALID_TOKEN.to_owned()) }
}

fn invalid_token(why: &str) -> String {
    format!("[{INVALID_TOKEN}, {why}]")
}

fn with_group(mut user: UserInfo) -> UserInfo {
    if user.name != ANONYMOUS && !user.is_member_of(AUTHENTICATED) && !user.is_member_of(UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// The credentials of `Authorization: <scheme> <credentials>`.
fn authorization(headers: &HeaderMap, scheme: &str) -> Option<String> {
    // Bytes that are no text make wrong credentials, not none.
    let header = String::from_utf8_lossy(headers.get(header::AUTHORIZATION)?.as_bytes());
    let mut words = header.trim().splitn(3, ' ');
    words.next().filter(|word| word.eq_ignore_ascii_case(scheme))?;
    // Nothing, or a space too many, is no credentials at all.
    words.next().filter(|credentials| !credentials.is_empty()).map(str::to_owned)
}

/// The token of a browser's session. Explicit credentials come before it.
pub(crate) fn session_token(headers: &HeaderMap) -> Option<&str> {
    if headers.contains_key(header::AUTHORIZATION) {
        return None;
    }
    cookie(headers, SESSION_COOKIE)
}

/// The value of a cookie; an empty one is none.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"')).filter(|value| !value.is_empty())
}

/// The user and password of `Authorization: Basic`.
fn basic_header(headers: &HeaderMap) -> Option<Result<(String, String), String>> {
    let encoded = authorization(headers, "basic")?;
    let malformed = || "malformed basic credentials".to_owned();
    let decoded = BASE64_STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
    Some(pair.map(|(user, password)| (user.to_owned(), password.to_owned())).ok_or_else(malformed))
}

/// Whose password came with a request.
pub(crate) fn basic_user(headers: &HeaderMap) -> Option<String> {
    basic_header(headers)?.ok().map(|(user, _)| user)
}

/// The token among the subprotocols of a WebSocket request.
fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, String> {
    let mentions = |name, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    if !mentions(header::CONNECTION, "upgrade") || !mentions(header::UPGRADE, "websocket") {
        return Ok(None);
    }
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let (mut token, mut others) = (None, false);
    for protocol in values.flat_map(|value| value.split(',')).map(str::trim) {
        let Some(encoded) = protocol.strip_prefix(WEBSOCKET_BEARER) else {
            others = true;
            continue;
        };
        if token.is_some() {
            return Err("multiple base64.bearer.authorization tokens specified".to_owned());
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(encoded);
        let bytes = bytes.map_err(|_| "invalid base64.bearer.authorization token encoding".to_owned())?;
        token = Some(String::from_utf8(bytes).map_err(|_| "invalid base64.bearer.authorization token".to_owned())?);
    }
    match token.filter(|token| !token.is_empty()) {
        // The server answers with one of the subprotocols, and it must not be the one that holds the token.
        Some(_) if !others => Err("missing additional subprotocol".to_owned()),
        token => Ok(token),
    }
}

#[cfg(test)]
mod tests;

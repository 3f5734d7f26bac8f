//! Who is asking, and may they.
//!
//! - [`authenticate`]: certificate, token or password → [`UserInfo`](crate::user::UserInfo).
//! - [`impersonate`]: the user that an authorized caller asks to be.
//! - [`rbac`]: may this user do that? [`escalation`] keeps users from granting what they do not hold.
//! - [`aggregation`]: the rules of ClusterRoles that are made of others.
//! - [`bootstrap`]: the roles and bindings that every cluster starts with.
//! - [`reviews`], [`token_request`]: the virtual kinds through which clients ask all of this.
//! - [`tokens`]: the tokens of service accounts, in Secrets and on request.
//!
//! Everything here reads the cache and nothing writes: the callers store what these functions return.

pub(crate) mod attributes;
pub(crate) mod authenticate;
pub(crate) mod bootstrap;
mod covers;
pub(crate) mod escalation;
pub(crate) mod impersonate;
pub(crate) mod rbac;
pub(crate) mod request_header;
pub(crate) mod reviews;
mod rule;
pub(crate) mod service_account;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod token_request;
pub(crate) mod tokens;

use std::sync::Arc;

use croft_meta::ApiError;
use croft_pki::{Ca, TokenSigner};

use self::authenticate::oidc::Issuers;
use crate::audit::Trail;
use crate::cache::Cache;
use crate::metrics::Logins;
use crate::user::UserInfo;

pub(crate) use attributes::Attributes;
pub(crate) use authenticate::Authenticator;
pub use authenticate::lockouts::LoginLimits;
pub(crate) use rbac::Rbac;
use request_header::FrontProxies;
pub(crate) use tokens::ServiceAccountTokens;

/// All of it, wired to one cache.
#[derive(Debug)]
pub(crate) struct Auth {
    pub(crate) authenticator: Authenticator,
    pub(crate) rbac: Rbac,
    pub(crate) tokens: ServiceAccountTokens,
}

impl Auth {
    pub(crate) fn new(
        cache: &Cache,
        ca: Arc<Ca>,
        signer: Arc<TokenSigner>,
        limits: LoginLimits,
        front_proxies: Option<FrontProxies>,
    ) -> Result<Self, getrandom::Error> {
        let tokens = ServiceAccountTokens::new(cache, &ca, Arc::clone(&signer));
        let mut authenticator = Authenticator::new(cache, ca, signer, limits)?;
        authenticator.front_proxies = front_proxies;
        Ok(Self { authenticator, rbac: Rbac::new(cache), tokens })
    }

    #[must_use]
    pub(crate) fn trusting(self, issuers: Arc<Issuers>) -> Self {
        Self { authenticator: self.authenticator.trusting(issuers), ..self }
    }

    #[must_use]
    pub(crate) fn counting(self, counts: Logins) -> Self {
        Self { authenticator: self.authenticator.counting(counts), ..self }
    }

    /// The 403 if the user may not.
    pub(crate) fn authorize(&self, user: &UserInfo, wanted: &Attributes<'_>) -> Result<(), ApiError> {
        let decision = self.rbac.authorize(user, wanted);
        if decision.allowed { Ok(()) } else { Err(wanted.forbidden(user, &decision.reason)) }
    }

    /// The same, and the audit log is told how it was decided.
    pub(crate) fn authorize_told(
        &self,
        user: &UserInfo,
        wanted: &Attributes<'_>,
        trail: &Trail,
    ) -> Result<(), ApiError> {
        let decision = self.rbac.authorize(user, wanted);
        trail.decided(&decision);
        if decision.allowed { Ok(()) } else { Err(wanted.forbidden(user, &decision.reason)) }
    }
}

/// Whoever presented valid credentials.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Whoever presented none.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of whoever presented no credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// Members may do everything, whatever the roles say.
pub(crate) const MASTERS: &str = "system:masters";

/// The API group of roles and bindings.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

//! What somebody shows to log in, and what comes of it.

use croft_meta::ApiError;
use croft_pki::Secret;
use sha2::{Digest, Sha256};

use super::passwords::{LONGEST, LocalUser};
use super::second_factor::Used;
use crate::user::UserInfo;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoginError {
    Wrong(String),
    Throttled {
        retry_after_seconds: u32,
    },
    /// Nobody can log in by this name for now, whether there is such a user or not.
    Locked {
        retry_after_seconds: u32,
    },
    /// Too many are being checked already.
    Busy,
    /// The password is right, and a code is needed too.
    CodeNeeded,
    /// The password is right, and the code is not, or not any more.
    WrongCode,
}

impl LoginError {
    /// What the client is told, if it is to wait or to send a code; these answers tell that the password is right.
    pub(crate) fn refusal(&self) -> Option<ApiError> {
        match self {
            Self::Wrong(_) => None,
            Self::CodeNeeded => Some(ApiError::new(
                401,
                "TotpRequired",
                "the password is right; the code of the authenticator app, or a recovery code, is required too",
            )),
            Self::WrongCode => {
                Some(ApiError::new(401, "TotpInvalid", "the code is wrong, too old, or was used before"))
            }
            Self::Throttled { retry_after_seconds } => {
                Some(ApiError::too_many_requests("too many failed logins, try again later", *retry_after_seconds))
            }
            Self::Busy => Some(ApiError::too_many_requests("too many logins at once, try again later", 1)),
            Self::Locked { retry_after_seconds } => Some(ApiError::too_many_requests(
                "this name is locked after too many failed logins, try again later",
                *retry_after_seconds,
            )),
        }
    }

    /// For `croft_logins_total`.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Wrong(_) => "wrong_password",
            Self::Throttled { .. } => "throttled",
            Self::Locked { .. } => "locked",
            Self::Busy => "busy",
            Self::CodeNeeded => "code_needed",
            Self::WrongCode => "wrong_code",
        }
    }
}

/// What somebody shows to be let in as a user.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) name: String,
    /// `None` from somebody who is in already.
    pub(crate) password: Option<Secret>,
    pub(crate) code: Code,
}

impl Credentials {
    pub(crate) fn is_too_long(&self) -> bool {
        let code = match &self.code {
            Code::Sent(code) => code.as_ref(),
            Code::NotAsked => None,
        };
        let secrets = [self.password.as_ref(), code].into_iter().flatten().map(Secret::reveal);
        secrets.chain([self.name.as_str()]).any(|text| text.len() > LONGEST)
    }
}

#[derive(Debug)]
pub(crate) enum Code {
    /// Those who have a second factor must show it.
    Sent(Option<Secret>),
    /// Somebody who is in already proves to know the password.
    NotAsked,
}

/// Somebody who is who they say. A code that was used must be written down before they are let in: see
/// [`super::second_factor`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub(crate) user: UserInfo,
    pub(crate) used: Option<Used>,
    /// What it was proven against.
    pub(crate) standing: Standing,
    /// Of the tokens that are made for it: see [`super::validity`].
    pub(crate) generation: u64,
}

/// What a password proves something about: an account with this password, with a second factor or without one. What was let in
/// by a password stands for as long as none of them has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing([u8; 32]);

impl Standing {
    pub(super) fn of(user: &LocalUser, hash: &str) -> Self {
        let mut hasher = Sha256::new();
        for part in [user.user.uid.as_bytes(), hash.as_bytes()] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        hasher.update([u8::from(user.second_factor.is_some())]);
        Self(hasher.finalize().into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A password cannot carry a code with it: each code is good once, and clients send the password with every request.
pub(super) fn password_alone() -> ApiError {
    ApiError::new(401, "Unauthorized", "this user has a second factor: log in with a code, and use the token")
}

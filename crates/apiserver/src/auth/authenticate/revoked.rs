//! Credentials that may no longer be used although they have not ended, and that no Secret stands for which could be deleted:
//! client certificates, and single tokens of service accounts and of other issuers.
//!
//! They are in the Secret `revoked-credentials` of kube-system, of type `croft.io/revoked`: one key for each, and as its value
//! when the credential would have ended anyway (RFC 3339; empty for never). Keys: `x509-sha256-<fingerprint>`,
//! `x509-serial-<serial>`, and for a token what [`croft_pki::jws::revocation_key`] makes of its id.

use std::collections::HashSet;
use std::sync::Arc;

use croft_meta::Revision;
use croft_pki::client_cert::Marks;
use parking_lot::Mutex;
use serde_json::Value;

use super::USERS_NAMESPACE;
use crate::cache::{Cache, Collection};

pub(crate) const SECRET_TYPE: &str = "croft.io/revoked";
pub(crate) const NAME: &str = "revoked-credentials";

#[derive(Debug)]
pub(crate) struct Revoked {
    secrets: Arc<Collection>,
    /// The keys of the Secret, as of a revision.
    read: Mutex<(Revision, Arc<HashSet<String>>)>,
}

impl Revoked {
    pub(super) fn new(cache: &Cache) -> Self {
        Self { secrets: cache.collection("core/secrets"), read: Mutex::new((Revision::ZERO, Arc::default())) }
    }

    pub(crate) fn has_certificate(&self, marks: &Marks) -> bool {
        let revoked = self.keys();
        // Nearly always empty.
        !revoked.is_empty()
            && (revoked.contains(&format!("x509-sha256-{}", marks.fingerprint))
                || revoked.contains(&format!("x509-serial-{}", marks.serial)))
    }

    pub(super) fn has_token(&self, id: &str) -> bool {
        let revoked = self.keys();
        !id.is_empty() && !revoked.is_empty() && revoked.contains(&croft_pki::jws::revocation_key(id))
    }

    /// When the list last changed.
    pub(crate) fn revision(&self) -> Revision {
        self.secrets.get(&id()).map_or(Revision::ZERO, |secret| secret.revision)
    }

    fn keys(&self) -> Arc<HashSet<String>> {
        let Some(secret) = self.secrets.get(&id()) else { return Arc::default() };
        let mut read = self.read.lock();
        if read.0 != secret.revision {
            *read = (secret.revision, Arc::new(keys_of(&secret.json())));
        }
        Arc::clone(&read.1)
    }
}

fn id() -> String {
    format!("{USERS_NAMESPACE}/{NAME}")
}

fn keys_of(secret: &Value) -> HashSet<String> {
    if secret["type"] != SECRET_TYPE {
        return HashSet::new();
    }
    secret["data"].as_object().map(|data| data.keys().cloned().collect()).unwrap_or_default()
}

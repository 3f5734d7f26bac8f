//! Credentials that may no longer be used although they have not ended, and that no Secret stands for which could be deleted:
//! client certificates, and single tokens of service accounts and of other issuers.
//!
//! They are in the Secret `revoked-credentials` of kube-system, of type `croft.io/revoked`: one key for each, and as its value
//! when the credential would have ended anyway (RFC 3339; empty for never). Keys: `x509-sha256-<fingerprint>`,
//! `x509-serial-<serial>`, and for a token what [`croft_pki::jws::revocation_key`] makes of its id.
//!
//! If the Secret is there and cannot be read, anything of before may have been revoked, and none of it is good.

use std::collections::HashSet;
use std::sync::Arc;

use croft_meta::Revision;
use croft_pki::client_cert::Marks;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;

use super::USERS_NAMESPACE;
use crate::cache::{Cache, Collection, Object};

pub(crate) const SECRET_TYPE: &str = "croft.io/revoked";
pub(crate) const NAME: &str = "revoked-credentials";

#[derive(Debug)]
pub(crate) struct Revoked {
    secrets: Arc<Collection>,
    /// The keys of the Secret, as of a revision.
    read: Mutex<(Revision, Arc<HashSet<String>>)>,
    /// When it was first seen that the Secret cannot be read, while it cannot.
    lost: Mutex<Option<Timestamp>>,
}

enum Listed {
    Keys(Arc<HashSet<String>>),
    /// Nobody knows what. The server sees that before it lets anybody in, so all from before then may be on the list; and all
    /// of that second, since certificates and tokens tell no less.
    Lost {
        since: Timestamp,
    },
}

impl Revoked {
    pub(super) fn new(cache: &Cache) -> Self {
        Self {
            secrets: cache.collection("core/secrets"),
            read: Mutex::new((Revision::ZERO, Arc::default())),
            lost: Mutex::default(),
        }
    }

    pub(crate) fn has_certificate(&self, marks: &Marks) -> bool {
        let revoked = match self.listed() {
            Listed::Keys(revoked) => revoked,
            Listed::Lost { since } => return marks.issued.as_second() <= since.as_second(),
        };
        let mut fingerprints = [Some(&marks.fingerprint), marks.twin.as_ref()].into_iter().flatten();
        // Nearly always empty.
        !revoked.is_empty()
            && (fingerprints.any(|fingerprint| revoked.contains(&format!("x509-sha256-{fingerprint}")))
                || revoked.contains(&format!("x509-serial-{}", marks.serial)))
    }

    /// `issued` says in which second the token was made, if that is known.
    pub(super) fn has_token(&self, id: &str, issued: impl FnOnce() -> Option<i64>) -> bool {
        if id.is_empty() {
            return false;
        }
        match self.listed() {
            Listed::Keys(revoked) => !revoked.is_empty() && revoked.contains(&croft_pki::jws::revocation_key(id)),
            Listed::Lost { since } => issued().is_none_or(|issued| issued <= since.as_second()),
        }
    }

    /// The time for what is made now to be good, which may have to be waited for.
    pub(crate) async fn time_to_issue(&self) -> Timestamp {
        // The list is looked at before the clock is: what is found to be lost only now is lost from now on.
        if let Listed::Lost { since } = self.listed() {
            let second = SignedDuration::from_secs(1);
            let over = SignedDuration::from_secs(since.as_second()) + second - Timestamp::now().as_duration();
            // No longer, should the clock be set back.
            tokio::time::sleep(over.clamp(SignedDuration::ZERO, second).unsigned_abs()).await;
        }
        Timestamp::now()
    }

    /// When the list last changed.
    pub(crate) fn revision(&self) -> Revision {
        let lost = || self.secrets.unreadable(&id()).map(|lost| lost.revision);
        self.secrets.get(&id()).map(|secret| secret.revision).or_else(lost).unwrap_or(Revision::ZERO)
    }

    fn listed(&self) -> Listed {
        let id = id();
        let mut secret = self.secrets.get(&id);
        if secret.is_none() {
            if let Some(lost) = self.secrets.unreadable(&id) {
                return Listed::Lost { since: self.lost_since(&lost.why) };
            }
            // It may have become readable in between.
            secret = self.secrets.get(&id);
        }
        *self.lost.lock() = None;
        Listed::Keys(secret.map(|secret| self.keys(&secret)).unwrap_or_default())
    }

    fn lost_since(&self, why: &str) -> Timestamp {
        *self.lost.lock().get_or_insert_with(|| {
            tracing::error!(
                why,
                "the Secret {NAME} of {USERS_NAMESPACE} cannot be read: client certificates and signed tokens from before now are \
                 refused, until it is deleted; the kubeconfig in the data directory is made anew"
            );
            Timestamp::now()
        })
    }

    fn keys(&self, secret: &Object) -> Arc<HashSet<String>> {
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

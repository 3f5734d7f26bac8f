//! Streams that are open, by the credentials they were opened with: watches, consoles, subscriptions, up- and downloads. When
//! a credential ends or is revoked, so do its streams, within [`LOOK`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONNECTION, COOKIE, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http_body::Body as _;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::server::ApiServer;

/// How often open credentials are looked at again.
const LOOK: Duration = Duration::from_secs(2);

type Certificates = Option<Arc<[CertificateDer<'static>]>>;

/// One credential with open streams; whoever streams holds on to it.
pub(crate) struct Session {
    headers: HeaderMap,
    certificates: Certificates,
    ended: CancellationToken,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("headers", &"***").finish_non_exhaustive()
    }
}

impl Session {
    /// Cancelled when the credential has ended, or the server stops.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<[u8; 32], Weak<Session>>>,
}

impl Sessions {
    /// The session of these credentials; none without any.
    pub(crate) fn enter(
        &self,
        headers: &HeaderMap,
        certificates: &Certificates,
        stop: &CancellationToken,
    ) -> Option<Arc<Session>> {
        let mut kept = HeaderMap::new();
        for name in [AUTHORIZATION, COOKIE, SEC_WEBSOCKET_PROTOCOL] {
            for value in headers.get_all(&name) {
                kept.append(&name, value.clone());
            }
        }
        if kept.is_empty() && certificates.is_none() {
            return None;
        }
        // By these a token among the protocols is known.
        for name in [CONNECTION, UPGRADE] {
            for value in headers.get_all(&name) {
                kept.append(&name, value.clone());
            }
        }
        let digest = digest(&kept, certificates);
        let mut open = self.open.lock();
        if let Some(session) = open.get(&digest).and_then(Weak::upgrade).filter(|known| !known.ended.is_cancelled()) {
            return Some(session);
        }
        let certificates = certificates.clone();
        let session = Arc::new(Session { headers: kept, certificates, ended: stop.child_token() });
        open.insert(digest, Arc::downgrade(&session));
        Some(session)
    }

    fn all(&self) -> Vec<Arc<Session>> {
        let mut open = self.open.lock();
        open.retain(|_, session| session.strong_count() > 0);
        // One that has ended is not tried again: a wrong password would count each time.
        open.values().filter_map(Weak::upgrade).filter(|session| !session.ended.is_cancelled()).collect()
    }
}

fn digest(headers: &HeaderMap, certificates: &Certificates) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut add = |part: &[u8]| {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    };
    for (name, value) in headers {
        add(name.as_str().as_bytes());
        add(value.as_bytes());
    }
    for certificate in certificates.iter().flat_map(|chain| chain.iter()) {
        add(certificate);
    }
    hasher.finalize().into()
}

/// Runs until the server stops.
pub(crate) async fn watch_over(server: Arc<ApiServer>) {
    let stop = server.stopping();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = stop.cancelled() => return,
        }
        for session in server.sessions.all() {
            let known = server.auth.authenticator.authenticate(&session.headers, session.certificates.as_deref(), None);
            match known.await {
                // Somebody who is to wait has not been found out.
                Ok(_) => {}
                Err(error) if error.code() == 429 => {}
                Err(_) => {
                    tracing::info!("a credential has ended, and so do its streams");
                    session.ended.cancel();
                }
            }
        }
    }
}

/// The answer, as long as its session lasts.
pub(crate) fn until_ended(answer: Answer, session: Arc<Session>) -> Answer {
    // What is there whole is sent before anybody could look.
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    answer.map(|body| {
        let ended = session.ended();
        let frames = BodyStream::new(body).take_until(async move {
            ended.cancelled().await;
            drop(session);
        });
        StreamBody::new(frames).boxed_unsync()
    })
}

//! Streams that are open, by the credentials they were opened with: watches, consoles, subscriptions, up- and downloads. When
//! a credential ends or is revoked, so do its streams, within [`LOOK`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderMap;
use http::header::{CONNECTION, UPGRADE};
use http_body::Body as _;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::auth::authenticate::{Authenticator, CREDENTIAL_ID, Recognized, Standing};
use crate::cut::{Cut, Ending};
use crate::server::ApiServer;

/// How often open credentials are looked at again.
const LOOK: Duration = Duration::from_secs(2);

type Certificates = Option<Arc<[CertificateDer<'static>]>>;

/// One credential with open streams; whoever streams holds on to it.
pub(crate) struct Session {
    headers: HeaderMap,
    certificates: Certificates,
    /// Who came with them.
    known: Recognized,
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
    /// The session of these credentials, which somebody was recognized by; none without any.
    pub(crate) fn enter(
        &self,
        authenticator: &Authenticator,
        headers: &HeaderMap,
        certificates: &Certificates,
        known: &Recognized,
        stop: &CancellationToken,
    ) -> Option<Arc<Session>> {
        let mut kept = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(name, _)| authenticator.is_credential(name)) {
            kept.append(name, value.clone());
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
        let digest = digest(&kept, certificates, known);
        let mut open = self.open.lock();
        if let Some(session) = open.get(&digest).and_then(Weak::upgrade).filter(|known| !known.ended.is_cancelled()) {
            return Some(session);
        }
        let certificates = certificates.clone();
        let session =
            Arc::new(Session { headers: kept, certificates, known: known.clone(), ended: stop.child_token() });
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

fn digest(headers: &HeaderMap, certificates: &Certificates, known: &Recognized) -> [u8; 32] {
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
    // The same headers may stand for somebody else by now.
    let Recognized { user, standing } = known;
    add(user.name.as_bytes());
    add(user.uid.as_bytes());
    for id in user.extra.get(CREDENTIAL_ID).into_iter().flatten() {
        add(id.as_bytes());
    }
    add(standing.as_ref().map_or(&[], Standing::bytes));
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
            let Session { headers, certificates, known, ended } = &*session;
            if !server.auth.authenticator.recognizes(known, headers, certificates.as_deref()).await {
                tracing::info!("a credential has ended, and so do its streams");
                ended.cancel();
            }
        }
    }
}

/// The answer, as long as its session lasts.
pub(crate) fn until_ended(answer: Answer, session: Arc<Session>, ending: Ending) -> Answer {
    // What is there whole is sent before anybody could look.
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    let until = async move {
        session.ended().cancelled().await;
        "the credential has ended, or the server stops"
    };
    answer.map(|body| Cut::new(body, ending, until).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use croft_pki::front_proxy::{FrontProxy, ProxyAuthority};
    use http::HeaderValue;
    use jiff::Timestamp;

    use super::*;
    use crate::auth::request_header::FrontProxies;
    use crate::auth::testing::{Keys, TestCache};

    #[tokio::test]
    async fn each_user_of_a_proxy_has_a_session_that_is_still_theirs() {
        let (cache, dir) = (TestCache::new([]).await, tempfile::tempdir().unwrap());
        let front = FrontProxy::load_or_create(dir.path(), Timestamp::now()).unwrap();
        let authority = ProxyAuthority::from_pem(front.ca_pem()).unwrap();
        let mut authenticator = Keys::new().authenticator(&cache);
        let certificates: Certificates = Some(Arc::new([front.identity(Timestamp::now()).unwrap().cert]));
        let headers = |user: &'static str| {
            let pairs = [("x-remote-user", user), ("x-remote-group", "g"), ("x-remote-extra-a", "b"), ("accept", "c")];
            let pairs =
                pairs.map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
            HeaderMap::from_iter(pairs)
        };
        let (sessions, stop) = (Sessions::default(), CancellationToken::new());
        let nobody = Recognized::from(crate::user::UserInfo::anonymous());
        assert!(
            sessions.enter(&authenticator, &headers("ann"), &None, &nobody, &stop).is_none(),
            "no proxy is trusted"
        );

        authenticator.front_proxies = Some(FrontProxies { authority, allowed_names: Vec::new() });
        let mut opened = Vec::new();
        for name in ["ann", "bob", "ann"] {
            let known = authenticator.recognize(&headers(name), certificates.as_deref(), None).await.unwrap();
            assert_eq!(
                (known.user.name.as_str(), known.user.extra["a"].as_slice()),
                (name, ["b".to_owned()].as_slice())
            );
            let session = sessions.enter(&authenticator, &headers(name), &certificates, &known, &stop).unwrap();
            assert!(
                authenticator.recognizes(&known, &session.headers, session.certificates.as_deref()).await,
                "{name}"
            );
            assert!(!session.headers.contains_key("accept"));
            opened.push(session);
        }
        assert!(!Arc::ptr_eq(&opened[0], &opened[1]) && Arc::ptr_eq(&opened[0], &opened[2]));
    }

    #[tokio::test]
    async fn the_same_headers_that_stand_for_somebody_else_make_another_session() {
        let cache = TestCache::new([]).await;
        let authenticator = Keys::new().authenticator(&cache);
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
        let (sessions, stop) = (Sessions::default(), CancellationToken::new());
        let enter = |id: &str| {
            let mut user = crate::user::UserInfo::new("ann", &[]);
            user.extra.insert(CREDENTIAL_ID.to_owned(), vec![id.to_owned()]);
            sessions.enter(&authenticator, &headers, &None, &user.into(), &stop).unwrap()
        };
        let (first, other, again) = (enter("X509SHA256=1"), enter("JTI=1"), enter("X509SHA256=1"));
        assert!(!Arc::ptr_eq(&first, &other) && Arc::ptr_eq(&first, &again));
    }
}

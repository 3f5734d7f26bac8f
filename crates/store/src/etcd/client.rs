//! Requests to an etcd cluster: which member, with which token, and when to try again.

use std::path::Path;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};

use super::EtcdOptions;
use super::proto::auth_client::AuthClient;
use super::proto::maintenance_client::MaintenanceClient;
use super::proto::{AuthenticateRequest, StatusRequest, StatusResponse};
use crate::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A caller gets an answer within this, whatever the members do.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A member that leaves a request unanswered for this long has had its turn.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(2);
/// Without a leader, members are asked again for this long: an election takes a second or two.
const ELECTION_PATIENCE: Duration = Duration::from_secs(5);
/// etcd cuts off clients that ask more often than every five seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Between rounds over all members.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
const ROUNDS: usize = 3;

const PEM_CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Whether a request may be sent again when it is not known what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// A read, or a write that comes to the same when done twice.
    Safe,
    /// Only when it certainly was not carried out.
    IfUnsent,
}

#[derive(Debug)]
pub(super) struct Client {
    members: Vec<Channel>,
    /// Counts on from member to member, round and round.
    current: watch::Sender<usize>,
    credentials: Option<Credentials>,
    token: RwLock<Option<MetadataValue<Ascii>>>,
    pub(super) closed: CancellationToken,
}

struct Credentials {
    username: String,
    password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).field("password", &"***").finish()
    }
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self> {
        if options.endpoints.is_empty() {
            return Err(Error::Invalid { reason: "no etcd endpoint was given".to_owned() });
        }
        let tls = tls_config(options)?;
        let members = options.endpoints.iter().map(|url| member(url, tls.as_ref())).collect::<Result<_>>()?;
        let credentials = match (&options.username, &options.password) {
            (Some(username), Some(password)) => {
                Some(Credentials { username: username.clone(), password: password.clone() })
            }
            (None, None) => None,
            _ => {
                return Err(Error::Invalid { reason: "etcd's user name and password go together".to_owned() });
            }
        };
        Ok(Self {
            members,
            current: watch::Sender::new(0),
            credentials,
            token: RwLock::default(),
            closed: CancellationToken::new(),
        })
    }

    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    pub(super) fn channels(&self) -> &[Channel] {
        &self.members
    }

    /// The member in use, and its number for [`Self::leave`].
    pub(super) fn member(&self) -> (usize, Channel) {
        let number = *self.current.borrow();
        (number, self.members[number % self.members.len()].clone())
    }

    /// Moves on from a member that does not answer, unless somebody else already has.
    pub(super) fn leave(&self, number: usize) {
        if self.members.len() == 1 {
            return;
        }
        let next = number.wrapping_add(1);
        let is_first = self.current.send_if_modified(|current| {
            let is_first = *current == number;
            if is_first {
                *current = next;
            }
            is_first
        });
        if is_first {
            tracing::warn!(member = next % self.members.len(), "etcd member left, trying the next");
        }
    }

    /// Ends when somebody has left the member.
    pub(super) async fn left(&self, number: usize) {
        // It fails when there is no sender, and that is `self`.
        let _ = self.current.subscribe().wait_for(|current| *current != number).await;
    }

    /// Adds what etcd wants to know besides the message.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        // A member without a leader says so at once instead of letting us wait.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &*self.token.read() {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// Sends `message` until a member answers it or there is no use in going on.
    pub(super) async fn call<T, R, F>(
        &self,
        message: T,
        repeat: Repeat,
        rpc: impl Fn(Channel, Request<T>) -> F,
    ) -> Result<R, Status>
    where
        T: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let start = Instant::now();
        let end = start + REQUEST_TIMEOUT;
        let mut renewed = false;
        let (mut asked, mut unreachable) = (0_usize, 0);
        loop {
            if self.closed.is_cancelled() {
                return Err(Status::unavailable("the store has been closed"));
            }
            let (number, channel) = self.member();
            let status = match self.ask(number, rpc(channel, self.request(message.clone())), repeat, end).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            if is_stale_token(&status) && self.credentials.is_some() && !renewed {
                renewed = true;
                self.authenticate().await?;
                continue;
            }
            if !is_member_failing(&status) {
                return Err(status);
            }
            self.leave(number);
            asked += 1;
            // Whoever can be reached makes the rest worth waiting for.
            unreachable = if has_no_leader(&status) { 0 } else { unreachable + 1 };
            let is_late = Instant::now() + ROUND_PAUSE >= end;
            let is_leaderless = has_no_leader(&status) && start.elapsed() >= ELECTION_PATIENCE;
            let is_hopeless = unreachable >= self.members.len() * ROUNDS || is_leaderless || is_late;
            if is_hopeless || (repeat == Repeat::IfUnsent && !was_unsent(&status)) {
                return Err(status);
            }
            if asked.is_multiple_of(self.members.len()) {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
        }
    }

    /// One attempt. A read that a member leaves unanswered may be had from another; a write that was sent cannot be sent again,
    /// so its answer is waited for to the end, but what comes after it need not go the same way.
    async fn ask<R>(
        &self,
        number: usize,
        answer: impl Future<Output = Result<R, Status>>,
        repeat: Repeat,
        end: Instant,
    ) -> Result<R, Status> {
        let late = || Status::deadline_exceeded("etcd did not answer in time");
        let mut answer = std::pin::pin!(tokio::time::timeout_at(end, answer));
        if self.members.len() > 1 {
            match tokio::time::timeout(MEMBER_TIMEOUT, &mut answer).await {
                Ok(answer) => return answer.unwrap_or_else(|_| Err(late())),
                Err(_) if repeat == Repeat::Safe => return Err(late()),
                Err(_) => self.leave(number),
            }
        }
        answer.await.unwrap_or_else(|_| Err(late()))
    }

    /// Gets a token, where a user name was given.
    pub(super) async fn authenticate(&self) -> Result<(), Status> {
        let Some(credentials) = &self.credentials else { return Ok(()) };
        let mut last = Status::unavailable("no etcd member could be asked");
        for _ in 0..self.members.len() {
            let (number, channel) = self.member();
            let message =
                AuthenticateRequest { name: credentials.username.clone(), password: credentials.password.clone() };
            let mut client = AuthClient::new(channel);
            let patience = if self.members.len() > 1 { MEMBER_TIMEOUT } else { REQUEST_TIMEOUT };
            let answer = tokio::time::timeout(patience, client.authenticate(message)).await;
            match answer {
                Ok(Ok(response)) => {
                    let token = MetadataValue::try_from(response.into_inner().token)
                        .map_err(|_| Status::internal("etcd gave a token that is not text"))?;
                    *self.token.write() = Some(token);
                    return Ok(());
                }
                Ok(Err(status)) if status.message().contains("authentication is not enabled") => return Ok(()),
                Ok(Err(status)) if !is_member_failing(&status) => return Err(status),
                Ok(Err(status)) => last = status,
                Err(_) => last = Status::deadline_exceeded("etcd did not answer in time"),
            }
            self.leave(number);
        }
        Err(last)
    }

    /// The status of each member, where it answers.
    pub(super) async fn statuses(&self) -> Vec<Option<StatusResponse>> {
        let ask = self.members.iter().map(|channel| async {
            let mut client = MaintenanceClient::new(channel.clone());
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, client.status(self.request(StatusRequest {}))).await;
            answer.ok()?.ok().map(Response::into_inner)
        });
        futures::future::join_all(ask).await
    }
}

fn member(url: &str, tls: Option<&ClientTlsConfig>) -> Result<Channel> {
    let fail = |err: Box<dyn std::error::Error + Send + Sync>| Error::Engine {
        context: format!("cannot use the etcd endpoint {url}"),
        source: err,
    };
    let url = if url.contains("://") {
        url.to_owned()
    } else {
        format!("{}://{url}", if tls.is_some() { "https" } else { "http" })
    };
    if url.starts_with("https://") && tls.is_none() {
        return Err(fail("an https endpoint needs a CA certificate to check it with".into()));
    }
    let mut endpoint = Endpoint::from_shared(url.clone())
        .map_err(|err| fail(err.into()))?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(Duration::from_secs(5))
        .tcp_nodelay(true);
    if let Some(tls) = tls.filter(|_| url.starts_with("https://")) {
        endpoint = endpoint.tls_config(tls.clone()).map_err(|err| fail(err.into()))?;
    }
    Ok(endpoint.connect_lazy())
}

fn tls_config(options: &EtcdOptions) -> Result<Option<ClientTlsConfig>> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| Error::Engine {
            context: format!("cannot read {}", path.display()),
            source: source.into(),
        })
    };
    let mut tls = None;
    if let Some(ca) = &options.ca {
        let pem = read(ca)?;
        // Without this, every connection would fail later, for reasons that nobody could guess.
        if !pem.windows(PEM_CERTIFICATE.len()).any(|window| window == PEM_CERTIFICATE) {
            return Err(Error::Invalid { reason: format!("{} holds no certificate", ca.display()) });
        }
        tls = Some(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)));
    }
    match (&options.cert, &options.key, tls) {
        (None, None, tls) => Ok(tls),
        (Some(cert), Some(key), Some(tls)) => Ok(Some(tls.identity(Identity::from_pem(read(cert)?, read(key)?)))),
        _ => Err(Error::Invalid {
            reason: "etcd's client certificate needs its key and the CA certificate beside it".to_owned(),
        }),
    }
}

pub(super) fn is_stale_token(status: &Status) -> bool {
    // Both also come for a first request without a token.
    let text = status.message();
    text.contains("invalid auth token")
        || text.contains("revision of auth store is old")
        || text.contains("user name is empty")
}

/// Another member may do better, or the same one a little later.
pub(super) fn is_member_failing(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
        || is_broken(status)
        || was_dropped(status)
}

/// The connection failed, whatever code tonic has chosen for that: what etcd itself says has no deeper cause.
pub(super) fn is_broken(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// The member was reached, and waits for an election.
fn has_no_leader(status: &Status) -> bool {
    status.message() == "etcdserver: no leader" || was_dropped(status)
}

/// etcd did not even propose it: there was no leader, or it was about to hand over, or had too much to do.
pub(super) fn was_dropped(status: &Status) -> bool {
    !is_broken(status)
        && ["raft proposal dropped", "etcdserver: too many requests"].iter().any(|text| status.message().contains(text))
}

/// The request did not reach etcd, or etcd refused before proposing it.
fn was_unsent(status: &Status) -> bool {
    if has_no_leader(status) {
        return true;
    }
    let mut cause = std::error::Error::source(status);
    while let Some(err) = cause {
        // There was no connection to send it by. The error of one that there was may look the same in every other way.
        if err.is::<tonic::ConnectError>() {
            return true;
        }
        cause = err.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_sent_again_only_if_it_was_not_carried_out() {
        let refused = || std::io::Error::from(std::io::ErrorKind::HostUnreachable);
        let unconnected = Status::from_error(Box::new(tonic::ConnectError(refused().into())));
        let cases = [
            (Status::unavailable("etcdserver: no leader"), true),
            (Status::unknown("raft proposal dropped"), true),
            (Status::resource_exhausted("etcdserver: too many requests"), true),
            (unconnected, true),
            // An open connection that gives up says the same as one that was never made.
            (Status::from_error(Box::new(refused())), false),
            (Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset))), false),
            (Status::unavailable("etcdserver: request timed out"), false),
            (Status::unavailable("etcdserver: request timed out, possibly due to previous leader failure"), false),
            (Status::unavailable("etcdserver: leader changed"), false),
            (Status::deadline_exceeded("etcd did not answer in time"), false),
        ];
        for (status, expected) in cases {
            assert!(is_member_failing(&status), "{status:?}");
            assert_eq!(was_unsent(&status), expected, "{status:?}");
        }
        assert!(!is_member_failing(&Status::permission_denied("etcdserver: permission denied")));
    }
}

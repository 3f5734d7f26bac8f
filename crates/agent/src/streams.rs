//! Raw byte streams between the API server and something of a guest, after `101 Switching Protocols`.

pub(crate) mod datagrams;

use std::future::Future;
use std::sync::Arc;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::answer::{Body, Failure, empty};

/// What such a stream is called in the `Upgrade` header.
const PROTOCOL: &str = "croft-stream";

/// The API server's end of a stream.
pub(crate) type Stream = TokioIo<Upgraded>;

/// The streams that are open; all end with the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    open: TaskTracker,
    stop: CancellationToken,
}

impl Streams {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { open: TaskTracker::new(), stop }
    }

    /// Answers that the stream begins, and runs `serve` on it.
    pub(crate) fn start<F>(
        &self,
        request: Request<Incoming>,
        serve: impl FnOnce(Stream) -> F + Send + 'static,
    ) -> Result<Response<Body>, Failure>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        check(&request)?;
        let stop = self.stop.clone();
        self.open.spawn(async move {
            let serving = async {
                match hyper::upgrade::on(request).await {
                    Ok(stream) => serve(TokioIo::new(stream)).await,
                    Err(error) => tracing::debug!(%error, "a stream did not begin"),
                }
            };
            stop.run_until_cancelled(serving).await;
        });
        let mut response = empty();
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        Ok(response)
    }

    /// Waits for those that are ending.
    pub(crate) async fn finish(&self) {
        self.open.close();
        self.open.wait().await;
    }
}

/// Before anything is dialled: a request that is no stream must not disturb one.
pub(crate) fn check(request: &Request<Incoming>) -> Result<(), Failure> {
    let asked = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    if asked.is_some_and(|protocol| protocol.eq_ignore_ascii_case(PROTOCOL)) {
        return Ok(());
    }
    Err(Failure::bad_request(format!("this is a stream: ask for it with Upgrade: {PROTOCOL}")))
}

/// Copies both ways until both sides have ended, or one has failed.
pub(crate) async fn join(
    mut user: impl AsyncRead + AsyncWrite + Unpin,
    mut guest: impl AsyncRead + AsyncWrite + Unpin,
) {
    // Whichever side broke, the other learns it by the end of its stream.
    let _ = tokio::io::copy_bidirectional(&mut user, &mut guest).await;
}

/// A place for one stream at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(Arc<Mutex<Option<CancellationToken>>>);

/// The right to a [`Place`], given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    place: Place,
    taken: CancellationToken,
}

impl Place {
    /// Ends whoever is there.
    pub(crate) fn take_over(&self) -> Held {
        let taken = CancellationToken::new();
        if let Some(before) = self.0.lock().replace(taken.clone()) {
            before.cancel();
        }
        Held { place: self.clone(), taken }
    }

    /// None if somebody is there.
    pub(crate) fn take(&self) -> Option<Held> {
        let mut place = self.0.lock();
        if place.is_some() {
            return None;
        }
        let taken = CancellationToken::new();
        *place = Some(taken.clone());
        Some(Held { place: self.clone(), taken })
    }
}

impl Held {
    /// Runs until it ends by itself or another takes the place.
    pub(crate) async fn run(self, stream: impl Future<Output = ()>) {
        self.taken.run_until_cancelled(stream).await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Whoever took over has cancelled ours and put their own in.
        if !self.taken.is_cancelled() {
            *self.place.0.lock() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_the_newer_wins_if_it_insists() {
        let place = Place::default();
        let first = place.take().unwrap();
        assert!(place.take().is_none());
        let second = place.take_over();
        first.run(std::future::pending()).await;
        assert!(place.take().is_none(), "the end of the first is not the end of the second");
        drop(second);
        assert!(place.take().is_some());
    }
}

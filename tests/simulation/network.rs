//! What is between a client and the server: messages are slow, get lost, arrive twice, and overtake each other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use croft_apiserver::{BoxError, LocalService, Running};
use futures::future::BoxFuture;
use futures::stream;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

use crate::mutation::Mutation;
use crate::sim::{Fault, Sim};

pub(crate) type ReplyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A server that is there.
#[derive(Clone)]
pub(crate) struct Up {
    pub(crate) running: Arc<Running>,
    pub(crate) dead: CancellationToken,
}

/// Where clients look for the server.
#[derive(Default)]
pub(crate) struct Place {
    up: Mutex<Option<Up>>,
    /// What each read answered first, for the one mutation that answers so again.
    before: Mutex<BTreeMap<String, (http::response::Parts, Bytes)>>,
}

impl Place {
    pub(crate) fn up(&self) -> Option<Up> {
        self.up.lock().clone()
    }

    pub(crate) fn set(&self, up: Option<Up>) -> Option<Up> {
        std::mem::replace(&mut *self.up.lock(), up)
    }
}

/// One client's way to the server.
#[derive(Clone)]
pub(crate) struct Wire {
    sim: Sim,
    place: Arc<Place>,
    name: Arc<str>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.name)
    }
}

fn reset(what: &str) -> BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, what.to_owned()).into()
}

/// A client that goes away may or may not end what the server does for it.
struct Serving {
    sim: Sim,
    task: JoinHandle<Result<Response<ReplyBody>, BoxError>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.task.is_finished() && self.sim.percent(50) {
            self.task.abort();
        }
    }
}

impl Wire {
    pub(crate) fn new(sim: Sim, place: Arc<Place>, name: &str) -> Self {
        Self { sim, place, name: name.into() }
    }

    async fn send(self, request: Request<Bytes>) -> Result<Response<ReplyBody>, BoxError> {
        let sim = &self.sim;
        let uri = request.uri().to_string();
        let line = format!("{} {} {uri}", self.name, request.method());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        sim.delay().await;
        if sim.strikes(Fault::RequestLost) {
            sim.step(format_args!("{line} is lost"));
            sim.delay().await;
            return Err(reset("the request was lost"));
        }
        let Some(up) = self.place.up() else {
            sim.step(format_args!("{line} finds no server"));
            return Err(reset("nobody listens"));
        };
        if request.method() == Method::GET && !is_watch && sim.strikes(Fault::RequestTwice) {
            // Its answer goes nowhere.
            drop(tokio::spawn(serve(sim.clone(), up.running.local(), request.clone(), false)));
        }
        let is_read = request.method() == Method::GET && !is_watch;
        let task = tokio::spawn(serve(sim.clone(), up.running.local(), request, is_watch));
        let mut serving = Serving { sim: sim.clone(), task };
        let cut = sim.strikes(Fault::RequestCut).then(|| sim.within(Duration::from_millis(20)));
        let answer = tokio::select! {
            biased;
            () = up.dead.cancelled() => Err(reset("the server died")),
            () = after(cut) => Err(reset("the connection broke")),
            served = &mut serving.task => served.unwrap_or_else(|err| Err(err.into())),
        };
        drop(serving);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                sim.step(format_args!("{line}: {error}"));
                return Err(error);
            }
        };
        sim.step(format_args!("{line}: {}", answer.status().as_u16()));
        if sim.strikes(Fault::AnswerLost) {
            sim.step(format_args!("{line}: the answer is lost"));
            sim.delay().await;
            return Err(reset("the answer was lost"));
        }
        sim.delay().await;
        let is_stale = is_read && self.name.starts_with("user") && sim.has(Mutation::ReadsStale);
        let answer = if is_stale { self.stale(&uri, answer).await? } else { answer };
        Ok(if is_watch { self.streamed(answer, up.dead) } else { answer })
    }

    /// A read is answered with what the same read was answered with first.
    async fn stale(&self, uri: &str, answer: Response<ReplyBody>) -> Result<Response<ReplyBody>, BoxError> {
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let told = self.place.before.lock().entry(uri.to_owned()).or_insert((parts, body)).clone();
        Ok(Response::from_parts(told.0, full(told.1)))
    }

    fn streamed(&self, answer: Response<ReplyBody>, dead: CancellationToken) -> Response<ReplyBody> {
        let sim = self.sim.clone();
        answer.map(|body| {
            let frames = stream::unfold(Some((body, None::<Bytes>)), move |state| {
                let (sim, dead) = (sim.clone(), dead.clone());
                async move {
                    let (mut body, again) = state?;
                    if let Some(again) = again {
                        return Some((Ok(Frame::data(again)), Some((body, None))));
                    }
                    let frame = tokio::select! {
                        biased;
                        () = dead.cancelled() => Err(reset("the server died")),
                        frame = body.frame() => frame?,
                    };
                    if sim.strikes(Fault::WatchCut) {
                        return Some((Err(reset("the watch broke")), None));
                    }
                    if sim.is_faulty() && sim.percent(30) {
                        sim.delay().await;
                    }
                    let repeats = sim.has(Mutation::ChangesRepeated) && sim.percent(10);
                    let again = frame.as_ref().ok().and_then(|frame| frame.data_ref().cloned()).filter(|_| repeats);
                    let next = frame.is_ok().then_some((body, again));
                    Some((frame, next))
                }
            });
            BodyExt::boxed_unsync(StreamBody::new(frames))
        })
    }
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

async fn serve(
    sim: Sim,
    mut server: LocalService,
    request: Request<Bytes>,
    is_watch: bool,
) -> Result<Response<ReplyBody>, BoxError> {
    assert!(!sim.has(Mutation::ServerPanics), "a panic on purpose: the seed must die of it");
    let server = ServiceExt::<Request<Full<Bytes>>>::ready(&mut server).await?;
    let answer = server.call(request.map(Full::new)).await?;
    if is_watch {
        return Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()));
    }
    let (parts, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(parts, full(body)))
}

fn full(body: Bytes) -> ReplyBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

impl<B> Service<Request<B>> for Wire
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ReplyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            wire.send(Request::from_parts(parts, body)).await
        })
    }
}

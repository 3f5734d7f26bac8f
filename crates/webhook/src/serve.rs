//! Listening for API servers that ask.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Chain;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::decide::{Asked, Judge};
use crate::kinds::Kinds;
use crate::metrics::{Counted, Metrics};
use crate::review;
use crate::tls::{self, Certificate, Speaking};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// An API server has the whole review before it begins to send it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// An API server keeps few.
const MAX_CONNECTIONS: usize = 256;
/// Reviews that are decided at a time; the others wait. Each takes a thread.
const MAX_REVIEWS: usize = 64;
/// Reviews that may be this large are in memory a few at a time; the others wait with theirs unread.
const SMALL_BODY: u64 = 64 << 10;
const MAX_LARGE_REVIEWS: usize = 4;
/// Reviews that come over one connection at a time. An API server that has more to ask makes another one.
const MAX_STREAMS: u32 = 16;
/// A review has an object twice, which may have 3 MiB each.
const MAX_BODY: usize = 16 << 20;
/// What an API server waits for if nobody says otherwise, and at most.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
const READY_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Config {
    /// The server that objects are read from, which is the one that asks.
    pub client: kube::Client,
    pub listen: SocketAddr,
    pub certificate: Certificate,
    /// Only clients with a certificate of these authorities are served.
    pub client_ca: Option<PathBuf>,
    /// Users that are parts of Croft.
    pub platform_users: Vec<String>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("listen", &self.listen).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("listening on {addr}")]
    Listen {
        addr: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("loading the certificate")]
    Certificate(#[from] tls::Error),
}

/// A server that answers.
#[derive(Debug)]
pub struct Running {
    pub address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    /// Lets what is being decided be decided.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

pub async fn start(config: Config) -> Result<Running, Error> {
    let failed = |source| Error::Listen { addr: config.listen, source };
    let speaking = Speaking::new(config.certificate, config.client_ca.as_deref())?;
    let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let server = Arc::new(Server {
        judge: Judge {
            client: config.client,
            kinds: Arc::new(Kinds::all()),
            platform: Arc::new(config.platform_users.into_iter().collect()),
        },
        metrics: Metrics::new(),
        reviews: Semaphore::new(MAX_REVIEWS),
        large_reviews: Semaphore::new(MAX_LARGE_REVIEWS),
    });
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let acceptor = TlsAcceptor::from(Arc::clone(&speaking.config));
    tasks.spawn(speaking.keep(stop.clone()));
    tasks.spawn(accept(server, listener, acceptor, tasks.clone(), stop.clone()));
    Ok(Running { address, stop, tasks })
}

async fn accept(
    server: Arc<Server>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // It is not closed, so that there is a place some time.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let serving = connection(Arc::clone(&server), acceptor.clone(), stream, stop.clone());
                tasks.spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(server: Arc<Server>, acceptor: TlsAcceptor, stream: TcpStream, stop: CancellationToken) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}

struct Server {
    judge: Judge,
    metrics: Metrics,
    reviews: Semaphore,
    large_reviews: Semaphore,
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        if let Some(asked) = asked(&path) {
            if request.method() != Method::POST {
                return text(StatusCode::METHOD_NOT_ALLOWED, "reviews are sent with POST".to_owned());
            }
            return self.review(asked, request).await;
        }
        match path.as_str() {
            "/healthz" | "/livez" => text(StatusCode::OK, "ok".to_owned()),
            "/readyz" => self.ready().await,
            "/metrics" => text(StatusCode::OK, self.metrics.text()),
            _ => text(StatusCode::NOT_FOUND, "there is nothing here".to_owned()),
        }
    }

    /// Without the server that objects are read from, nothing can be decided.
    async fn ready(&self) -> Response<Full<Bytes>> {
        match tokio::time::timeout(READY_TIMEOUT, self.judge.client.apiserver_version()).await {
            Ok(Ok(_)) => text(StatusCode::OK, "ok".to_owned()),
            Ok(Err(error)) => {
                text(StatusCode::SERVICE_UNAVAILABLE, format!("the API server does not answer: {}", Chain(&error)))
            }
            Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "the API server does not answer".to_owned()),
        }
    }

    async fn review<B>(&self, asked: Asked, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let started = Instant::now();
        let deadline = tokio::time::Instant::now() + timeout(request.uri().query());
        let is_small = request.body().size_hint().upper().is_some_and(|size| size <= SMALL_BODY);
        let _room = if is_small {
            None
        } else {
            match tokio::time::timeout_at(deadline, self.large_reviews.acquire()).await {
                Ok(Ok(room)) => Some(room),
                Ok(Err(_)) | Err(_) => return last(too_much()),
            }
        };
        let body = Limited::new(request.into_body(), MAX_BODY).collect();
        let body = match tokio::time::timeout_at(deadline.min(tokio::time::Instant::now() + BODY_TIMEOUT), body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return last(text(StatusCode::PAYLOAD_TOO_LARGE, format!("a review may have {MAX_BODY} bytes")));
            }
            Ok(Err(_)) | Err(_) => {
                return last(text(StatusCode::BAD_REQUEST, "the review did not come in whole".to_owned()));
            }
        };
        // Before it is taken apart, which takes several times the memory.
        let Ok(Ok(place)) = tokio::time::timeout_at(deadline, self.reviews.acquire()).await else {
            return too_much();
        };
        let request = match review::read(&body) {
            Ok(request) => Arc::new(request),
            Err(why) => return text(StatusCode::BAD_REQUEST, why),
        };
        let stage = if asked == Asked::Mutate { "mutate" } else { "validate" };
        let known = self.judge.kinds.get(&request.resource.group, &request.resource.resource);
        let resource = known.map_or("other", |kind| kind.plural.as_str());
        let decided = self.judge.decide(asked, Arc::clone(&request), deadline).await;
        drop(place);
        let outcome = decided.as_ref().map_or("failed", review::Answer::outcome);
        let counted = Counted { stage, resource, operation: request.operation.name(), outcome };
        self.metrics.reviewed(&counted, started.elapsed());
        match decided {
            Ok(answer) => json(&answer.body(&request.uid)),
            Err(error) => {
                tracing::warn!(resource, error = %Chain(&error), "a review could not be decided");
                text(StatusCode::INTERNAL_SERVER_ERROR, Chain(&error).to_string())
            }
        }
    }
}

fn too_much() -> Response<Full<Bytes>> {
    text(StatusCode::SERVICE_UNAVAILABLE, "too much is asked at once".to_owned())
}

fn asked(path: &str) -> Option<Asked> {
    if path == "/mutate" {
        return Some(Asked::Mutate);
    }
    match path.strip_prefix("/validate")? {
        "" => Some(Asked::Validate { name: None }),
        name => name.strip_prefix('/').map(|name| Asked::Validate { name: Some(name.to_owned()) }),
    }
}

/// How long the API server waits, which it says as Go writes durations.
fn timeout(query: Option<&str>) -> Duration {
    let said = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let seconds = said.and_then(|said| said.strip_suffix('s')).and_then(|seconds| seconds.parse().ok());
    seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs).min(MAX_TIMEOUT)
}

/// The rest of the body is not read, so that nothing can follow on the connection; the client is to know.
fn last(mut answer: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    answer.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("close"));
    answer
}

fn text(code: StatusCode, body: String) -> Response<Full<Bytes>> {
    answered(code, "text/plain; charset=utf-8", body)
}

fn json(body: &serde_json::Value) -> Response<Full<Bytes>> {
    answered(StatusCode::OK, "application/json", body.to_string())
}

fn answered(code: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With an API server that is not there: what has no rules can be decided without it.
    fn server() -> Server {
        let nowhere = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        Server {
            judge: Judge {
                client: kube::Client::try_from(nowhere).unwrap(),
                kinds: Arc::new(Kinds::all()),
                platform: Arc::default(),
            },
            metrics: Metrics::new(),
            reviews: Semaphore::new(MAX_REVIEWS),
            large_reviews: Semaphore::new(MAX_LARGE_REVIEWS),
        }
    }

    fn review(data: &str) -> Request<Full<Bytes>> {
        let map = serde_json::json!({"metadata": {"name": "a"}, "data": {"a": data}});
        let request = serde_json::json!({
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "operation": "CREATE",
            "name": "a", "namespace": "default", "userInfo": {"username": "jane"}, "object": map,
        });
        let review =
            serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        Request::post("/mutate?timeout=1s").body(Full::new(Bytes::from(review.to_string()))).unwrap()
    }

    #[tokio::test]
    async fn large_reviews_are_read_a_few_at_a_time() {
        drop(rustls::crypto::CryptoProvider::install_default(croft_pki::tls::provider().as_ref().clone()));
        let server = server();
        let large = "x".repeat(100 << 10);
        assert_eq!(server.review(Asked::Mutate, review(&large)).await.status(), StatusCode::OK);
        let all = u32::try_from(MAX_LARGE_REVIEWS).unwrap();
        let _others = server.large_reviews.acquire_many(all).await.unwrap();
        let refused = server.review(Asked::Mutate, review(&large)).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(server.review(Asked::Mutate, review("small")).await.status(), StatusCode::OK);
    }

    #[test]
    fn paths_say_what_is_asked() {
        assert_eq!(asked("/mutate"), Some(Asked::Mutate));
        assert_eq!(asked("/validate"), Some(Asked::Validate { name: None }));
        assert_eq!(asked("/validate/a.b.c"), Some(Asked::Validate { name: Some("a.b.c".to_owned()) }));
        assert_eq!((asked("/validates"), asked("/")), (None, None));
    }

    #[test]
    fn decisions_take_no_longer_than_somebody_waits() {
        for (query, seconds) in
            [(None, 10), (Some("timeout=3s"), 3), (Some("a=b&timeout=1h"), 10), (Some("timeout=90s"), 30)]
        {
            assert_eq!(timeout(query).as_secs(), seconds, "{query:?}");
        }
    }
}

//! The agent's HTTPS interface, which the API server alone may call: everything that needs the live machine.
//!
//! Answers are those that the user gets: failures are `metav1.Status`, and streams are raw bytes after `101 Switching
//! Protocols` to `croft-stream`, which the API server wraps into WebSockets.
//!
//! | request | what |
//! |---|---|
//! | `PUT /v1/vmis/{ns}/{name}/{pause,unpause,freeze,unfreeze,reset,softreboot}` | [`actions`] |
//! | `GET …/{guestosinfo,userlist,filesystemlist}`, `vnc/screenshot`, `log` | [`views`] |
//! | `GET …/{console,vnc,usbredir,vsock,portforward/{port}/{tcp,udp}}` | [`mod@streams`], upgraded |
//! | `POST /v1/images/{ns}/{name}?size=`, `GET /v1/images/{ns}/{name}`, `POST /v1/claims/{ns}/{name}` | [`transfers`] |
//! | `PATCH /v1/images/{ns}/{name}/pieces?offset=&length=`, `GET …`, `DELETE …` | [`transfers`] |
//! | `GET /logs`, `GET /logs/{name}` | [`mod@logs`] |
//! | `GET /metrics`, `GET /v1/usage`, `GET /v1/usage/node?window=`, `GET /v1/usage/vmis/{ns}/{name}?window=` | [`Figures`] |
//! | `GET /healthz` | |

mod actions;
pub(crate) mod answer;
mod listen;
mod logs;
mod route;
mod streams;
#[cfg(test)]
mod tests;
mod transfers;
mod views;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::guest::{Guest, Guests};
use crate::metrics::Figures;
use crate::streams::Streams;
use answer::{Body, Failure, failure};
pub(crate) use listen::{Tls, bind};
pub(crate) use logs::Logs;
use route::{Route, Subject};
pub(crate) use transfers::Stores;

/// From the connection to the end of the handshake, and from there to the end of the request's head.
const GREETING: Duration = Duration::from_secs(10);
/// The kernel refuses connections for want of descriptors or memory; trying at once again would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How ports of guests are reached from this host.
pub(crate) trait Reach: Send + Sync {
    fn reach<'a>(&'a self, guest: &'a Guest, port: u16, transport: Transport)
    -> BoxFuture<'a, Result<Reached, String>>;
}

/// Where to dial, for as long as this is held.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) address: SocketAddr,
    /// Ends what was set up for it.
    pub(crate) _way: Option<DropGuard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// What the requests are about.
pub(crate) struct Services {
    pub(crate) guests: Guests,
    pub(crate) reach: Arc<dyn Reach>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) logs: Logs,
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("guests", &self.guests).finish_non_exhaustive()
    }
}

/// What all requests share.
struct Server {
    services: Services,
    streams: Streams,
    thaws: actions::Thaws,
}

/// Answers requests until `stop`; open streams are cut then.
pub(crate) async fn serve(listener: TcpListener, tls: Tls, services: Services, stop: CancellationToken) {
    let server = Arc::new(Server { services, streams: Streams::new(stop.clone()), thaws: actions::Thaws::default() });
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(stream, tls.clone(), Arc::clone(&server));
                let connection = stop.clone().run_until_cancelled_owned(connection);
                connections.spawn(async move { _ = connection.await });
            }
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
    server.streams.finish().await;
}

async fn connection(stream: TcpStream, tls: Tls, server: Arc<Server>) {
    // Consoles are typed into.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(GREETING, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // Whoever it was, it was not the API server.
        Ok(Err(error)) => return tracing::debug!(%error, "a caller was refused"),
        Err(_) => return,
    };
    let service = service_fn(|request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection of the API server ended");
    }
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let answered = match Route::of(&request) {
            Ok(route) => self.dispatch(route, request).await,
            Err(refusal) => Err(refusal),
        };
        answered.unwrap_or_else(|refusal| failure(&refusal))
    }

    async fn dispatch(&self, route: Route, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
        match route {
            Route::Health => Ok(answer::text("ok")),
            Route::Logs(name) => {
                let query = request.uri().query().unwrap_or_default();
                self.services.logs.answer(&self.services.guests, &name, query).await
            }
            Route::Metrics => Ok(self.services.figures.answer().await),
            Route::Usage => self.services.figures.newest_usage(),
            Route::UsageHistory(of, window) => {
                let of = of.as_ref().map(|subject| (subject.namespace.as_str(), subject.name.as_str()));
                self.services.figures.usage_history(of, window)
            }
            Route::Act(subject, action) => {
                let guest = self.guest(&subject, Failure::conflict)?;
                actions::run(&guest, action, request.into_body(), &self.thaws).await?;
                Ok(answer::empty())
            }
            Route::View(subject, view) => {
                let guest = self.guest(&subject, Failure::conflict)?;
                views::answer(&guest, view, request.uri().query()).await
            }
            Route::Transfer(subject, transfer) => {
                transfers::run(&self.services.stores, &subject, transfer, request.into_body()).await
            }
            Route::Stream(subject, kind) => {
                // KubeVirt's own word for consoles of a machine that does not run yet: clients wait on this code alone.
                let guest = self.guest(&subject, |_, message| Failure::bad_request(message))?;
                streams::begin(&self.streams, &*self.services.reach, guest, kind, request).await
            }
        }
    }

    fn guest(&self, subject: &Subject, refuse: fn(&str, &str) -> Failure) -> Result<Arc<Guest>, Failure> {
        let guest = self.services.guests.get(&subject.namespace, &subject.name);
        guest.ok_or_else(|| refuse(&subject.name, "VMI is not running"))
    }
}

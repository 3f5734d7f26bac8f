//! The agent's HTTPS interface, which the API server alone may call: everything that needs the live machine.
//!
//! Answers are those that the user gets: failures are `metav1.Status`, and streams are raw bytes after `101 Switching
//! Protocols` to `croft-stream`, which the API server wraps into WebSockets.

mod answer;
mod listen;

use std::convert::Infallible;
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use answer::{Body, text};
pub(crate) use listen::{Tls, bind};

/// From the connection to the end of the handshake, and from there to the end of the request's head.
const GREETING: Duration = Duration::from_secs(10);
/// The kernel refuses connections for want of descriptors or memory; trying at once again would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests until `stop`; open streams are cut then.
pub(crate) async fn serve(listener: TcpListener, tls: Tls, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = stop.clone().run_until_cancelled_owned(connection(stream, tls.clone()));
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
}

async fn connection(stream: TcpStream, tls: Tls) {
    // Consoles are typed into.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(GREETING, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // Whoever it was, it was not the API server.
        Ok(Err(error)) => return tracing::debug!(%error, "a caller was refused"),
        Err(_) => return,
    };
    let service = service_fn(|request| async move { Ok::<_, Infallible>(answer_to(&request)) });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection of the API server ended");
    }
}

fn answer_to(request: &Request<Incoming>) -> Response<Body> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => text("ok"),
        (_, path) => answer::failure(&answer::Failure::not_found(format!("the agent has no {path}"))),
    }
}

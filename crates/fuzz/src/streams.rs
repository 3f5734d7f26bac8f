//! Streams: WebSockets of clients and forms with files.

use std::future::Future;

use croft_apiserver::fuzzing as server;

use crate::split;

/// Runs to the end on this thread.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}")).block_on(work)
}

/// No more comes out than went in, whatever the frames say.
pub(crate) fn websocket(data: &[u8]) {
    let [protocols, frames] = split(data);
    for datagrams in [false, true] {
        let received = run(server::websocket(protocols, frames, datagrams));
        assert!(received.len() <= 2 * frames.len(), "{} bytes out of {}", received.len(), frames.len());
    }
}

/// The file in a form does not depend on the pieces that it comes in.
pub(crate) fn multipart(data: &[u8]) {
    let [content_type, form] = split(data);
    let whole = run(server::multipart(content_type, form, form.len()));
    for piece in [1, 3, 64] {
        // Very long forms byte by byte tell no more.
        if form.len() / piece > 4096 {
            continue;
        }
        assert_eq!(run(server::multipart(content_type, form, piece)), whole, "in pieces of {piece}");
    }
}

//! A real API server without controllers, and what may happen there between two requests of one.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use croft_apiserver::LocalService;
use croft_store::{Embedded, EmbeddedOptions};
use futures::future::BoxFuture;
use http::Request;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tower::Service;

pub(crate) struct Rig {
    _dir: tempfile::TempDir,
    server: croft_apiserver::Running,
    /// What users and other servers do.
    pub(crate) client: Client,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default()).unwrap();
        let config = croft_apiserver::Config::new(dir.path().to_owned(), store);
        let server = croft_apiserver::start_unheard(config).await.unwrap();
        Self { _dir: dir, client: Client::new(server.local(), "default"), server }
    }

    /// A client before whose first request for a path something happens.
    pub(crate) fn meanwhile(&self, path: &'static str, happens: impl Future<Output = ()> + Send + 'static) -> Client {
        let happens = Arc::new(Mutex::new(Some(Box::pin(happens) as BoxFuture<'static, ()>)));
        Client::new(Meanwhile { server: self.server.local(), path, happens }, "default")
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        croft_reconcile::failure::absent_is_none(self.client.request(request).await).unwrap()
    }
}

/// As somebody does it who is not the controller that is tested.
pub(crate) async fn does(client: &Client, method: &str, path: &str, body: Value) -> Value {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, kind);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.request(request.body(body).unwrap()).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

struct Meanwhile {
    server: LocalService,
    path: &'static str,
    happens: Arc<Mutex<Option<BoxFuture<'static, ()>>>>,
}

impl Service<Request<Body>> for Meanwhile {
    type Response = <LocalService as Service<Request<Body>>>::Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_it = request.uri().path() == self.path;
        let happens = if is_it { self.happens.lock().take() } else { None };
        let answer = self.server.call(request);
        Box::pin(async move {
            if let Some(happens) = happens {
                happens.await;
            }
            answer.await
        })
    }
}

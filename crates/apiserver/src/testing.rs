//! A whole server in the process of a test, without controllers and without a socket.

mod lagging;

use std::sync::Arc;

use croft_store::{Embedded, EmbeddedOptions, Store};
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tempfile::TempDir;
use tower::Service as _;

use crate::config::Config;
use crate::local::LocalService;
use crate::server::{Running, start_unheard};

pub(crate) use lagging::Lagging;

#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) running: Running,
    local: LocalService,
    _dir: TempDir,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        let (dir, store) = store();
        Self::start_on(dir, store).await
    }

    /// One that hears late of what others do.
    pub(crate) async fn start_lagging() -> (Self, Arc<Lagging>) {
        let (dir, store) = store();
        let lagging = Arc::new(Lagging::new(store));
        (Self::start_on(dir, Arc::clone(&lagging) as Arc<dyn Store>).await, lagging)
    }

    async fn start_on(dir: TempDir, store: Arc<dyn Store>) -> Self {
        let running = start_unheard(Config::new(dir.path().to_owned(), store)).await.unwrap();
        Self { local: running.local(), running, _dir: dir }
    }

    /// The code and the body of the answer, which is null if it is not JSON.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let answer = self.local.clone().call(request.body(Full::from(body)).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (code, object) = self.send("GET", path, &Value::Null).await;
        assert_eq!(code, 200, "{path}: {object}");
        object
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Value {
        let (code, made) = self.send("POST", path, object).await;
        assert_eq!(code, 201, "{path}: {made}");
        made
    }
}

fn store() -> (TempDir, Arc<dyn Store>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default()).unwrap();
    (dir, store)
}

//! The API server as a tower service, for clients in the same process.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::answer::{Body, BoxError};
use crate::pipeline::{self, Caller};
use crate::server::ApiServer;

/// Requests through here come from Croft itself.
#[derive(Clone, Debug)]
pub struct LocalService(Arc<ApiServer>);

impl LocalService {
    pub(crate) fn new(server: Arc<ApiServer>) -> Self {
        Self(server)
    }
}

impl<B> tower::Service<Request<B>> for LocalService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = Arc::clone(&self.0);
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        Box::pin(async move { Ok(pipeline::handle(server, request, Caller::Internal).await) })
    }
}

//! Requests that are streams: connections into machines, and images on their way in or out.
//!
//! They last as long as their client wants, so that they have neither the time limit of other requests nor a place
//! among those in flight, and their bodies are never held in memory. Each kind ends by itself when nothing moves.

use std::sync::Arc;

use croft_meta::ApiError;
use http::request::Parts;

use crate::aggregation::Backend;
use crate::answer::{Answer, Body};
use crate::auth::Attributes;
use crate::call::Call;
use crate::request::{Query, RequestInfo};
use crate::server::ApiServer;
use crate::upload::Form;
use crate::{aggregation, harvester, kubevirt, pieces, rest, upload};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// A WebSocket into a machine.
    Machine,
    /// An image, through Harvester's own paths.
    Image(harvester::Image),
    /// A piece of an image.
    Piece(pieces::Image),
    /// Changes of many kinds over one WebSocket.
    Subscription,
    /// Data for a claim, by whoever holds the token for it.
    ClaimUpload(Form),
    /// Whatever another API server answers.
    Aggregated(Arc<Backend>),
}

impl Streamed {
    pub(crate) fn find(server: &ApiServer, info: &RequestInfo, query: &Query) -> Option<Self> {
        Self::own(info, query)
            .or_else(|| server.aggregation.find(|| server.catalog(), &info.path).map(Self::Aggregated))
    }

    pub(crate) fn is_aggregated(&self) -> bool {
        matches!(self, Self::Aggregated(_))
    }

    /// Those that this server answers itself.
    fn own(info: &RequestInfo, query: &Query) -> Option<Self> {
        if info.is_resource {
            return kubevirt::stream::is_stream(info).then_some(Self::Machine);
        }
        if rest::subscribe::is_subscription(info) {
            return Some(Self::Subscription);
        }
        if let Some(image) = pieces::Image::find(info) {
            return Some(Self::Piece(image));
        }
        harvester::Image::find(info, query).map(Self::Image).or_else(|| upload::find(info).map(Self::ClaimUpload))
    }

    /// What one must be allowed to do, where the path does not say.
    pub(crate) fn attributes(&self) -> Option<Attributes<'_>> {
        match self {
            Self::Image(image) => Some(image.attributes()),
            Self::Piece(image) => Some(image.attributes()),
            Self::Machine | Self::Subscription | Self::ClaimUpload(_) | Self::Aggregated(_) => None,
        }
    }

    pub(crate) async fn answer(&self, call: Call, parts: &mut Parts, body: Body) -> Result<Answer, ApiError> {
        match self {
            Self::Machine => kubevirt::stream::open(&call, parts).await,
            Self::Image(image) => image.answer(&call, body).await,
            Self::Piece(image) => image.answer(&call, body).await,
            Self::Subscription => rest::subscribe::open(call, parts),
            Self::Aggregated(backend) => aggregation::answer(&call, backend, parts, body).await,
            Self::ClaimUpload(form) => upload::claim(&call.server, parts, body, *form, &call.trail).await,
        }
    }
}

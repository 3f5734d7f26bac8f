//! What safety costs, and how the server bears what is hard on it.

mod admission;
mod audit;
mod connections;
mod moves;
mod sealing;
mod storm;
mod webhook;

use anyhow::Result;

use crate::Size;
use crate::report::Report;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    sealing::measure(size, report).await?;
    admission::measure(size, report).await?;
    webhook::measure(size, report).await?;
    audit::measure(size, report).await?;
    moves::measure(size, report).await?;
    storm::measure(size, report).await?;
    connections::measure(size, report).await
}

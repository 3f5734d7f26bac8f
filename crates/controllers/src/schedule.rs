//! Which node runs which instance.

mod amounts;
mod cluster;
mod guest;
mod host;
mod neighbours;
mod refusal;
mod score;
mod selectors;
mod spread;

//! Images and DataVolumes on a real API server, with real controllers and a real pool.

mod data_volumes;
mod pictures;
mod web;
mod world;

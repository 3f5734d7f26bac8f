//! Machines.

mod firmware;
mod host;
mod machine;
mod prepare;
mod running;
mod seed;
mod status;
mod volume;

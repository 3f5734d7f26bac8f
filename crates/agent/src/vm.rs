//! Machines.

mod host;
mod machine;
mod seed;
mod volume;

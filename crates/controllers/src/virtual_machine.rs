//! Machines and the instances that they run as.

mod back_off;
mod conditions;
mod live_update;
mod memory_dump;
mod printable;
mod run_strategy;
pub(crate) mod view;

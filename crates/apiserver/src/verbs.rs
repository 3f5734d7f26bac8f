//! The verbs, each the same for every kind.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod reviewed;
pub(crate) mod scale;
pub(crate) mod selection;
pub(crate) mod update;
pub(crate) mod watch;

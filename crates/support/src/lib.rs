//! Support bundles: what is to be known of a cluster, in one zip file that can be given away.
//!
//! A SupportBundle object asks for one. [`run`] makes them one after the other, through the API alone:
//! - every object as YAML, and the logs, without secrets ([`croft_meta::redact`]);
//! - each node's logs and facts, which its agent hands over ([`node`]);
//! - streamed into a file of bounded size ([`archive`]), which says itself what did not fit.
//!
//! The object tells how far it is, and its file is downloaded from the API server. Both go when they expire.
//!
//! Start reading at [`keeper`].

mod archive;
mod collect;
mod keeper;
mod node;
mod terms;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;

pub use keeper::run;

/// What making bundles needs.
#[derive(Clone)]
pub struct Config {
    pub client: Client,
    /// Where the files are kept.
    pub directory: PathBuf,
    /// What the server has logged of late.
    pub log: Arc<dyn Fn() -> Vec<u8> + Send + Sync>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("directory", &self.directory).finish_non_exhaustive()
    }
}

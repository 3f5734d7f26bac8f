//! Croft's rules as webhooks, so that another Kubernetes can ask them about the objects that it stores.
//!
//! The rules are those of `croft-api`, which the API server of Croft runs by itself; here they are run for somebody else's.
//! What they want to know of other objects is asked of that server while they wait ([`remote`]), so that they decide on
//! what is stored at that moment.
//!
//! - [`kinds`] says which kinds have rules, and where objects are found.
//! - [`review`] reads what is asked and words the answer; [`decide`] runs the rules.
//! - [`serve`] listens; [`manifests`] is what makes an API server ask.
//!
//! Start reading at [`decide`].

mod decide;
#[doc(hidden)]
pub mod fuzzing;
mod kinds;
pub mod manifests;
mod metrics;
mod remote;
mod review;
mod serve;
mod tls;

pub use kinds::{Kind, Kinds};
pub use serve::{Config, Error, Running, start};
pub use tls::Certificate;

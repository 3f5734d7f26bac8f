//! Who someone is, proven: the certificate authority, certificates, TLS, tokens, passwords, kubeconfigs.
//!
//! - [`Ca`] signs serving and client certificates and says who a client certificate belongs to.
//! - [`SigningRequest`] is what somebody with a key of their own asks the authority to sign.
//! - [`ServingCert`] and [`CertResolver`] keep the server's own certificate fresh without a restart.
//! - [`tls::server_config`] is how a listener speaks TLS.
//! - [`node`] is how the API server and the agents of the nodes know each other; [`peer`] lets in nobody else.
//! - [`TokenSigner`] mints and checks service-account tokens (JWT); [`BearerToken`] is an opaque token of a user.
//! - [`jws`] checks tokens that others sign, with the keys that they publish.
//! - [`ssh`] makes key pairs for logging in to guests.
//! - [`password`] hashes and checks passwords; [`totp`] the codes of a second factor. [`Kubeconfig`] is the file that clients read.
//!
//! Nothing here knows about the API's objects or decides what somebody may do. Functions that depend on time take
//! `now`. Secrets never show in `Debug`. Files are written whole or not at all, and private keys with mode 0600.
//!
//! Start reading at [`ca`].

pub mod any_server;
pub mod bearer;
pub mod ca;
pub mod client_cert;
mod der;
mod error;
mod file;
pub mod front_proxy;
pub mod jws;
pub mod kubeconfig;
pub mod node;
pub mod password;
pub mod peer;
pub mod secret;
pub mod service_account;
pub mod serving;
pub mod signing_request;
pub mod ssh;
mod subject;
pub mod tls;
pub mod totp;
pub mod twin;

pub use bearer::BearerToken;
pub use ca::{Ca, Issued};
pub use client_cert::{ClientCertError, Identity};
pub use error::{Error, Result};
pub use jws::{Jws, JwsError, KeySet, SigningAlgorithm};
pub use kubeconfig::Kubeconfig;
pub use node::AgentTls;
pub use secret::Secret;
pub use service_account::{BoundObject, TokenError, TokenRequest, TokenSigner, VerifiedToken};
pub use serving::{ServerNames, ServingCert};
pub use signing_request::SigningRequest;
pub use tls::CertResolver;
pub use totp::TotpKey;

//! What can go wrong with keys, certificates and the files they are in.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is there but is not what it should be. It is never replaced silently: what it signed would be lost.
    #[error("{} is damaged ({reason}); restore it from a backup, or move it away to start over", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} is missing but {} exists; restore it from a backup, or move both away to start over",
        missing.display(), present.display())]
    Incomplete { missing: PathBuf, present: PathBuf },
    #[error("cannot issue a certificate for {subject}")]
    Issue {
        subject: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("cannot sign a token")]
    Sign(#[source] jsonwebtoken::errors::Error),
    #[error("cannot hash the password: {0}")]
    Hash(String),
    #[error("cannot draw a QR code: {0}")]
    Qr(String),
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    #[error("{0} is out of the range of times")]
    Time(String),
    #[error("cannot make a key pair")]
    KeyPair,
    #[error("not a usable kubeconfig: {0}")]
    Kubeconfig(String),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

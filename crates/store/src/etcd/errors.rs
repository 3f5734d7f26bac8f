//! What etcd's answers mean to a caller of the store.

use tonic::{Code, Status};

use super::client::{is_broken, was_dropped};
use crate::Error;

/// Everything that needs no further question to etcd.
pub(super) fn error(status: &Status) -> Error {
    let text = status.message();
    let reason = || match root_cause(status) {
        Some(cause) => format!("etcd: {text}: {cause}"),
        None => format!("etcd: {}", text.trim_start_matches("etcdserver: ")),
    };
    match status.code() {
        _ if is_broken(status) || was_dropped(status) => Error::Unavailable { reason: reason() },
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Error::Unavailable { reason: reason() },
        Code::InvalidArgument if text.contains("too large") => Error::TooLarge { reason: reason() },
        Code::ResourceExhausted if text.contains("larger than max") => Error::TooLarge { reason: reason() },
        Code::ResourceExhausted if text.contains("space exceeded") => {
            let what = "its quota is used up; \"croft store defrag --compact\" compacts and defragments it, and disarms its alarm";
            Error::ReadOnly { reason: format!("{}: {what}", reason()) }
        }
        Code::DataLoss => Error::ReadOnly { reason: reason() },
        Code::InvalidArgument
            if ["too many operations", "duplicate key", "key is not provided"]
                .iter()
                .any(|part| text.contains(part)) =>
        {
            Error::Invalid { reason: reason() }
        }
        // The connection broke, for example because etcd wants a client certificate.
        Code::Unknown if std::error::Error::source(status).is_some() => Error::Unavailable { reason: reason() },
        // In etcd's words alone: how tonic prints a status is for programmers.
        _ => Error::Engine {
            context: "etcd refused the request".to_owned(),
            source: text.trim_start_matches("etcdserver: ").into(),
        },
    }
}

/// What the connection failed of, where it did; tonic itself only says that it did.
fn root_cause(status: &Status) -> Option<String> {
    let mut cause = std::error::Error::source(status)?;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(cause.to_string()).filter(|cause| cause != status.message())
}

pub(super) fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("compacted")
}

pub(super) fn is_future(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("future")
}

pub(super) fn is_no_lease(status: &Status) -> bool {
    status.code() == Code::NotFound && status.message().contains("lease")
}

#[cfg(test)]
mod tests {
    use croft_meta::Chain;

    use super::*;

    #[test]
    fn a_connection_that_breaks_is_an_etcd_out_of_reach_with_its_cause() {
        for kind in [std::io::ErrorKind::ConnectionReset, std::io::ErrorKind::BrokenPipe] {
            let status = Status::from_error(Box::new(std::io::Error::new(kind, "snapped")));
            let err = error(&status);
            assert!(matches!(err, Error::Unavailable { .. }), "{status:?}: {err}");
            assert!(err.to_string().contains("snapped"), "{err}");
        }
    }

    #[test]
    fn etcds_words_find_their_error() {
        let cases = [
            (Status::invalid_argument("etcdserver: request is too large"), "too large"),
            (Status::resource_exhausted("grpc: received message larger than max (2 vs. 1)"), "too large"),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), "read-only"),
            (Status::data_loss("etcdserver: corrupt cluster"), "read-only"),
            (Status::invalid_argument("etcdserver: too many operations in txn request"), "invalid"),
            (Status::unavailable("etcdserver: no leader"), "cannot be reached: etcd: no leader"),
            (Status::permission_denied("etcdserver: permission denied"), "refused the request: permission denied"),
            (Status::unknown("raft proposal dropped"), "cannot be reached: etcd: raft proposal dropped"),
            (Status::resource_exhausted("etcdserver: too many requests"), "cannot be reached: etcd: too many requests"),
            (Status::from_error("connection reset".into()), "cannot be reached: etcd: connection reset"),
        ];
        for (status, expected) in cases {
            let text = Chain(&error(&status)).to_string();
            assert!(text.contains(expected), "{status:?}: {text}");
        }
    }
}

//! What the server's refusals mean.

use croft_meta::Chain;
use kube::Error;

fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Api(status) => Some(status.code),
        _ => None,
    }
}

pub fn is_not_found(error: &Error) -> bool {
    code(error) == Some(404)
}

pub fn is_conflict(error: &Error) -> bool {
    code(error) == Some(409)
}

/// The wanted state is no longer in the server's history.
pub fn is_gone(error: &Error) -> bool {
    code(error) == Some(410)
}

/// Nothing can be created in a namespace that is on its way out.
pub fn is_namespace_terminating(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// What a user should read.
pub fn message(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => Chain(other).to_string(),
    }
}

/// For what is made once: made now, or there already.
pub fn made_or_there<T>(made: Result<T, Error>) -> Result<(), Error> {
    match made {
        Err(error) if !is_conflict(&error) => Err(error),
        _ => Ok(()),
    }
}

/// An answer whose object may be missing.
pub fn absent_is_none<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

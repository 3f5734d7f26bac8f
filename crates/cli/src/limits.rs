//! How much the server does, holds and keeps open at a time.

use anyhow::bail;
use croft_apiserver::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::options::ServerOptions;

/// What a connection takes: buffers of TLS and HTTP, and the head of a request.
const A_CONNECTION: u64 = 64 << 10;
/// Connections may take an eighth of the memory, what they have to send another, large answers a quarter.
const FOR_CONNECTIONS: u64 = 8;
const FOR_SENDING: u64 = 8;
const FOR_ANSWERS: u64 = 4;
/// Where neither the host nor a control group says how much there is.
const SOME_MEMORY: u64 = 4 << 30;

pub(crate) fn resolve(options: &ServerOptions) -> anyhow::Result<Limits> {
    let default = default(croft_agent::memory_bytes(), getrlimit(Resource::Nofile).maximum);
    let requests = match options.max_requests_inflight {
        Some(0) => bail!("--max-requests-inflight: with 0 nothing would ever be answered"),
        asked => asked.map_or(default.requests, |number| number as usize),
    };
    let connections = match options.max_connections {
        Some(0) => bail!("--max-connections: with 0 nobody could ever connect"),
        asked => asked.map_or(default.connections, |number| number as usize),
    };
    Ok(Limits { requests, connections, ..default })
}

/// Three quarters of the descriptors at the most: files and guests need some, too.
fn default(memory: u64, descriptors: Option<u64>) -> Limits {
    let memory = if memory == 0 { SOME_MEMORY } else { memory };
    let connections = (memory / FOR_CONNECTIONS / A_CONNECTION).min(descriptors.unwrap_or(u64::MAX) / 4 * 3).max(16);
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Limits {
        connections: size(connections),
        answer_bytes: size(memory / FOR_ANSWERS),
        sending_bytes: size(memory / FOR_SENDING),
        ..Limits::default()
    }
}

/// Many systems give a process 1,024 descriptors, and more if it asks, for the sake of programs that cannot count further.
pub(crate) fn take_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // What is refused leaves fewer connections, nothing worse.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_follow_memory_and_descriptors() {
        for (memory, descriptors, expected) in [
            (8 << 30, None, 16_384),
            (8 << 30, Some(1024), 768),
            (512 << 20, Some(1 << 20), 1024),
            (0, None, 8_192),
            (1 << 20, None, 16),
        ] {
            assert_eq!(default(memory, descriptors).connections, expected, "{memory} {descriptors:?}");
        }
    }
}

//! The options of a mount that mean something to a client that mounts nothing.

use std::time::Duration;

/// For one operation with all its calls.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What tells the kernel how to cache, lock or wait: nothing is cached or locked here, and nothing waits for ever.
const WITHOUT_EFFECT: [&str; 34] = [
    "soft",
    "softerr",
    "hard",
    "intr",
    "nointr",
    "retrans",
    "retry",
    "actimeo",
    "acregmin",
    "acregmax",
    "acdirmin",
    "acdirmax",
    "ac",
    "noac",
    "lock",
    "nolock",
    "cto",
    "nocto",
    "rsize",
    "wsize",
    "bg",
    "fg",
    "rw",
    "sync",
    "async",
    "noatime",
    "nodiratime",
    "relatime",
    "nconnect",
    "sharecache",
    "nosharecache",
    "lookupcache",
    "minorversion",
    "tcp",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) port: Option<u16>,
    pub(super) mount_port: Option<u16>,
    pub(super) timeout: Duration,
    /// Servers ask for a port below 1024 unless they are told otherwise.
    pub(super) is_reserved_port: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionError {
    #[error("the NFS option {0} is not known")]
    Unknown(String),
    #[error("the NFS option {0} has a wrong value")]
    Value(String),
    #[error("the NFS option {0} cannot be honoured: backups are spoken to a server over TCP with its own user check")]
    Unsupported(String),
}

impl Options {
    pub(super) fn parse(options: &[String]) -> Result<Self, OptionError> {
        let mut parsed = Self { port: None, mount_port: None, timeout: TIMEOUT, is_reserved_port: true };
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let wrong = || OptionError::Value(option.clone());
            match name {
                "port" => parsed.port = Some(port(value).ok_or_else(wrong)?),
                "mountport" => parsed.mount_port = Some(port(value).ok_or_else(wrong)?),
                "timeo" => {
                    let tenths: u32 = value.parse().ok().filter(|tenths| *tenths > 0).ok_or_else(wrong)?;
                    parsed.timeout = Duration::from_millis(u64::from(tenths) * 100).max(Duration::from_secs(5));
                }
                "resvport" => parsed.is_reserved_port = true,
                "noresvport" => parsed.is_reserved_port = false,
                // Longhorn asks for 4.x. What is in the files is the same.
                "vers" | "nfsvers" if ["3", "4", "4.0", "4.1", "4.2"].contains(&value) => {}
                "vers" | "nfsvers" => return Err(wrong()),
                "proto" | "mountproto" if ["tcp", "tcp6"].contains(&value) => {}
                "sec" if value == "sys" => {}
                "proto" | "mountproto" | "sec" | "udp" | "rdma" | "ro" => {
                    return Err(OptionError::Unsupported(option.clone()));
                }
                _ if WITHOUT_EFFECT.contains(&name) => {}
                _ => return Err(OptionError::Unknown(option.clone())),
            }
        }
        Ok(parsed)
    }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Result<Options, OptionError> {
        Options::parse(&options.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_honoured_or_refused() {
        let longhorn = parse(&["nfsvers=4.2", "actimeo=1", "soft", "timeo=300", "retry=2"]).unwrap();
        assert_eq!(longhorn, Options { timeout: Duration::from_secs(30), ..parse(&[]).unwrap() });
        let ports = parse(&["port=3049", "mountport=3048", "noresvport"]).unwrap();
        assert_eq!((ports.port, ports.mount_port, ports.is_reserved_port), (Some(3049), Some(3048), false));
        for wrong in ["sec=krb5", "proto=udp", "vers=2", "port=0", "timeo=x", "frobnicate", "ro"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }
}

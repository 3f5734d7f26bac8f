//! What the guest agent answers. Versions and operating systems differ in what they fill in, so nearly all is optional.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct OsInfo {
    pub id: String,
    pub name: String,
    pub pretty_name: String,
    pub version: String,
    pub version_id: String,
    pub kernel_release: String,
    pub kernel_version: String,
    pub machine: String,
    pub variant: String,
    pub variant_id: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Interface {
    pub name: String,
    pub hardware_address: String,
    pub ip_addresses: Vec<IpAddress>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct IpAddress {
    pub ip_address: String,
    /// `ipv4` or `ipv6`.
    pub ip_address_type: String,
    pub prefix: u8,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct User {
    pub user: String,
    pub domain: String,
    /// Seconds since 1970, with a fraction.
    pub login_time: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Filesystem {
    pub name: String,
    pub mountpoint: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub used_bytes: u64,
    pub total_bytes: u64,
    pub disk: Vec<GuestDisk>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct GuestDisk {
    pub serial: String,
    pub bus_type: String,
    pub dev: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FreezeStatus {
    Thawed,
    Frozen,
}

#[derive(Debug, Deserialize)]
pub(super) struct ExecStarted {
    pub(super) pid: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct ExecStatus {
    pub exited: bool,
    /// None while it runs, and for a command that a signal has ended.
    #[serde(rename = "exitcode")]
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    #[serde(rename = "out-data", deserialize_with = "base64")]
    pub stdout: Vec<u8>,
    #[serde(rename = "err-data", deserialize_with = "base64")]
    pub stderr: Vec<u8>,
    #[serde(rename = "out-truncated")]
    pub is_stdout_truncated: bool,
    #[serde(rename = "err-truncated")]
    pub is_stderr_truncated: bool,
}

fn base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text).map_err(serde::de::Error::custom)
}

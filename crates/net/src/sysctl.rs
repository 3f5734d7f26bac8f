//! The kernel's settings that a network needs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::NetError;

const ROOT: &str = "/proc/sys/net";

/// False if the kernel was started without IPv6.
pub(crate) fn has_ipv6() -> bool {
    Path::new(ROOT).join("ipv6/conf/all").exists()
}

/// Lets the host forward packets.
pub(crate) fn forward() -> Result<(), NetError> {
    set("ipv4/ip_forward", "1")?;
    if !has_ipv6() || get("ipv6/conf/all/forwarding").as_deref() == Some("1") {
        return Ok(());
    }
    // A host that forwards no longer listens to routers, unless told to: it would lose its own default route.
    for interface in interfaces() {
        let setting = format!("ipv6/conf/{interface}/accept_ra");
        if interface != "all" && get(&setting).as_deref() == Some("1") {
            set(&setting, "2")?;
        }
    }
    set("ipv6/conf/all/forwarding", "1")
}

/// What the bridge of the default network needs before it starts.
pub(crate) fn prepare_bridge(bridge: &str) -> Result<(), NetError> {
    // Guests cannot reach each other directly, so the host answers for all of them and forwards.
    set(&format!("ipv4/conf/{bridge}/proxy_arp_pvlan"), "1")?;
    set(&format!("ipv4/conf/{bridge}/send_redirects"), "0")?;
    if has_ipv6() {
        set(&format!("ipv6/conf/{bridge}/accept_ra"), "0")?;
        set(&format!("ipv6/conf/{bridge}/disable_ipv6"), "0")?;
        // Its link-local address is ours to choose.
        set(&format!("ipv6/conf/{bridge}/addr_gen_mode"), "1")?;
    }
    Ok(())
}

/// The host itself has no business on a guest's tap.
pub(crate) fn silence(tap: &str) -> Result<(), NetError> {
    if has_ipv6() { set(&format!("ipv6/conf/{tap}/disable_ipv6"), "1") } else { Ok(()) }
}

fn interfaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir(Path::new(ROOT).join("ipv6/conf")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn path(setting: &str) -> PathBuf {
    Path::new(ROOT).join(setting)
}

fn get(setting: &str) -> Option<String> {
    fs::read_to_string(path(setting)).ok().map(|value| value.trim().to_owned())
}

/// Writes only what differs: a container may read what it may not write.
fn set(setting: &str, value: &str) -> Result<(), NetError> {
    if get(setting).as_deref() == Some(value) {
        return Ok(());
    }
    let path = path(setting);
    fs::write(&path, value).map_err(|source: io::Error| NetError::Sysctl { path, source })
}

//! Network interfaces.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Id, SpecError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The device's id; its back end is called `<id>.net`.
    pub id: Id,
    pub backend: NicBackend,
    pub model: NicModel,
    pub mac: Mac,
    pub boot_index: Option<u16>,
    /// The number by which the guest names the interface (`eno<number>`).
    pub acpi_index: Option<u32>,
    /// The largest packet, as the guest is told; virtio only.
    pub mtu: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicBackend {
    /// A tap device that is already open, one descriptor a queue; with vhost, one more each.
    Tap { fds: Vec<FdRef>, vhost_fds: Vec<FdRef> },
    /// QEMU's own NAT, which needs no rights. The guest is 10.0.2.15.
    User { forwards: Vec<PortForward> },
    /// A stream of packets through a connected socket.
    SocketFd(FdRef),
    /// The same, through a unix socket that QEMU connects to.
    Stream { path: PathBuf },
}

/// A descriptor inside QEMU: a number it was started with, or a name given with `getfd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FdRef {
    Inherited(i32),
    Named(Id),
}

impl fmt::Display for FdRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FdRef::Inherited(number) => write!(f, "{number}"),
            FdRef::Named(name) => write!(f, "{name}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicModel {
    Virtio,
    E1000,
    E1000e,
    Rtl8139,
    Pcnet,
    Ne2kPci,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortForward {
    pub protocol: Protocol,
    pub host_address: Ipv4Addr,
    pub host_port: u16,
    pub guest_port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Mac {
    type Err = SpecError;

    /// Six pairs of hexadecimal digits between colons or dashes.
    fn from_str(text: &str) -> Result<Mac, SpecError> {
        let wrong = || SpecError::Mac(text.to_owned());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Mac(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read_and_written() {
        assert_eq!("52:54:00:AB:cd:01".parse::<Mac>().unwrap().to_string(), "52:54:00:ab:cd:01");
        assert_eq!("52-54-00-ab-cd-01".parse::<Mac>().unwrap(), Mac([0x52, 0x54, 0, 0xab, 0xcd, 1]));
        for bad in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:01:02", "+2:54:00:ab:cd:01", "52:54:00:ab:cd:1", "52:54,x=1"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}

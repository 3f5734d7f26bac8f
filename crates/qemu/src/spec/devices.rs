//! The small devices: console, screen, keyboard, watchdog, TPM.

use std::path::PathBuf;

/// Where QEMU waits for a client, one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// A unix socket that QEMU makes, and needs the right to make.
    Path(PathBuf),
    /// One that already listens, under its number in QEMU.
    Fd(i32),
}

/// The first serial port, on a unix socket that one client at a time may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serial {
    pub socket: Listener,
    /// Everything the guest writes is added here too. QEMU sets no limit to it: give it a pipe or rotate it.
    pub log: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vnc {
    Socket {
        path: PathBuf,
        /// Nobody gets in until a password is set with `set_password`.
        has_password: bool,
    },
    /// Clients come through the control connection alone: see [`crate::qmp::Qmp::connect_vnc`].
    ByDescriptor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watchdog {
    pub action: WatchdogAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchdogAction {
    Reset,
    /// Asks the guest's operating system to shut down.
    Shutdown,
    PowerOff,
    Pause,
    /// Only tells, with a `WATCHDOG` event.
    None,
}

/// A TPM emulated by swtpm, which listens on a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tpm {
    pub socket: TpmSocket,
    pub model: TpmModel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TpmSocket {
    Path(PathBuf),
    /// A connection that is already there, under its number in QEMU.
    Fd(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TpmModel {
    Crb,
    Tis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Video {
    None,
    Vga,
    Virtio,
    Bochs,
    Cirrus,
}

/// A sound card that plays to nobody: guests want to see one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sound {
    Ich9,
    Ac97,
}

/// Tells when the guest's kernel has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanicDevice {
    Isa,
    Pci,
}

/// The guest's address among this host's guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vsock {
    pub cid: u32,
    /// `/dev/vhost-vsock`, opened by somebody who may.
    pub vhost_fd: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    UsbTablet,
    UsbKeyboard,
    VirtioTablet,
    VirtioKeyboard,
}

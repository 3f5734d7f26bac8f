//! The small devices: console, screen, keyboard, watchdog, TPM.

use std::path::PathBuf;

/// The first serial port, on a unix socket that one client at a time may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serial {
    pub socket: PathBuf,
    /// Everything the guest writes is added here too. QEMU sets no limit to it: give it a pipe or rotate it.
    pub log: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vnc {
    pub socket: PathBuf,
    /// Nobody gets in until a password is set with `set_password`.
    pub has_password: bool,
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
    pub socket: PathBuf,
    pub model: TpmModel,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    UsbTablet,
    UsbKeyboard,
    VirtioTablet,
    VirtioKeyboard,
}

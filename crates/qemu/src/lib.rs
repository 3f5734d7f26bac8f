//! One virtual machine is one QEMU process. This crate writes its command line, starts it, finds it again,
//! and talks to it; it knows nothing of objects, nodes or volumes.
//!
//! - [`spec`] says what a machine is; [`args`] turns that into QEMU's arguments. No text that a user chose can
//!   become an option of its own: everything is JSON or has its commas doubled, and names of things are [`spec::Id`]s.
//! - [`accel`] decides between KVM and emulation by running a guest; [`io_uring`] tries out how disks are best driven.
//! - [`process`] starts QEMU so that it outlives us, and adopts those that are already there.
//! - [`qmp`] is the control connection, [`qga`] the one to the agent inside the guest.
//!
//! Nothing here trusts the guest, nor assumes that QEMU answers: every wait has an end.
//!
//! Start reading at [`process::Process::start`].

pub mod accel;
pub mod args;
#[doc(hidden)]
pub mod fuzzing;
pub mod io_uring;
pub mod process;
pub mod qga;
pub mod qmp;
pub mod spec;

//! KVM, or emulation where KVM does not really work.
//!
//! That `/dev/kvm` exists and opens proves little: inside some clouds' machines it is there, runs real-mode code, and
//! hangs at the first instruction of a 64-bit guest. So a small guest is run that does what every operating system does
//! first: page tables, long mode, vector registers, a stack, a few million instructions. It then says so through a port.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    Kvm,
    /// Emulation, with this much memory for translated code; QEMU's own choice is a large part of the host's memory.
    Tcg {
        cache_mib: Option<u32>,
    },
}

/// What a probe has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub accel: Accel,
    /// Why it is not KVM.
    pub reason: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("{} cannot run a guest at all: {reason}", binary.display())]
pub struct ProbeError {
    pub binary: std::path::PathBuf,
    pub reason: String,
}

/// KVM needs milliseconds; a busy host may need more.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Emulation has to finish some day: it is the last resort.
const EMULATION_TIMEOUT: Duration = Duration::from_mins(1);
/// More than the probe needs, even emulated on a slow machine.
const PROCESSOR_SECONDS: u64 = 20;
/// The guest's word for "all went well", as QEMU turns it into an exit code.
const SUCCESS: u8 = 0x10;

/// Decides by running a guest, under KVM for at most `patience`, then emulated.
pub async fn probe(binary: &Path, patience: Duration) -> Result<Probe, ProbeError> {
    let reason = match try_kvm(binary, patience).await {
        Ok(()) => return Ok(Probe { accel: Accel::Kvm, reason: None }),
        Err(reason) => reason,
    };
    match run_guest(binary, "tcg,tb-size=8", EMULATION_TIMEOUT).await {
        Ok(()) => Ok(Probe { accel: Accel::Tcg { cache_mib: None }, reason: Some(reason) }),
        Err(reason) => Err(ProbeError { binary: binary.to_owned(), reason }),
    }
}

async fn try_kvm(binary: &Path, patience: Duration) -> Result<(), String> {
    let device = Path::new("/dev/kvm");
    let opened = tokio::fs::OpenOptions::new().read(true).write(true).open(device).await;
    opened.map_err(|error| format!("{}: {error}", device.display()))?;
    run_guest(binary, "kvm", patience).await.map_err(|reason| format!("KVM does not run guests: {reason}"))
}

/// Runs the probe guest to its end; otherwise says what happened.
async fn run_guest(binary: &Path, accel: &str, patience: Duration) -> Result<(), String> {
    let firmware = firmware().map_err(|error| format!("no memory for the probe guest: {error}"))?;
    let mut child = Command::new(binary)
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-m", "4"])
        .args(["-accel", accel, "-no-reboot", "-bios", "/dev/stdin"])
        .args(["-device", "isa-debug-exit,iobase=0x501,iosize=1"])
        .stdin(Stdio::from(firmware))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{} does not start: {error}", binary.display()))?;
    outlive_us_briefly(&child);
    match timeout(patience, finish(&mut child)).await {
        Err(_) => Err(format!("a 64-bit guest hung for {patience:?}")),
        Ok(outcome) => outcome,
    }
}

/// A guest that hangs burns a processor for ever; if we are killed meanwhile, nobody but the kernel is left to end it.
fn outlive_us_briefly(child: &Child) {
    let limit = Rlimit { current: Some(PROCESSOR_SECONDS), maximum: Some(PROCESSOR_SECONDS) };
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    // One that has ended already needs no limit.
    let _ = pid.map(|pid| prlimit(Some(pid), Resource::Cpu, limit));
}

async fn finish(child: &mut Child) -> Result<(), String> {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What is not text is not a message either.
        let _ = stderr.read_to_string(&mut said).await;
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    // The device exits with twice the guest's number plus one.
    if status.code() == Some(i32::from(SUCCESS) * 2 + 1) {
        return Ok(());
    }
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(format!("{status}{}", last.map(|line| format!(": {line}")).unwrap_or_default()))
}

/// A firmware of 64 KiB that is nothing but the guest; a file in memory, so nothing is left behind.
fn firmware() -> std::io::Result<File> {
    const SIZE: usize = 0x1_0000;
    const ENTRY: usize = 0xe000;
    const RESET_VECTOR: usize = 0xfff0;
    let mut rom = vec![0; SIZE];
    rom[ENTRY..ENTRY + GUEST.len()].copy_from_slice(GUEST);
    // jmp f000:e000
    rom[RESET_VECTOR..RESET_VECTOR + 5].copy_from_slice(&[0xea, 0x00, 0xe0, 0x00, 0xf0]);
    let mut file = File::from(memfd_create("probe", MemfdFlags::CLOEXEC)?);
    file.write_all(&rom)?;
    Ok(file)
}

/// The guest, at f000:e000.
#[rustfmt::skip]
const GUEST: &[u8] = &[
    // Real mode: clear 0x1000-0x3fff and map the first 2 MiB there.
    0xfa, // cli
    0x31, 0xc0, // xor %ax,%ax
    0x8e, 0xd8, // mov %ax,%ds
    0x8e, 0xc0, // mov %ax,%es
    0x8e, 0xd0, // mov %ax,%ss
    0xbc, 0x00, 0x70, // mov $0x7000,%sp
    0xbf, 0x00, 0x10, // mov $0x1000,%di
    0xb9, 0x00, 0x18, // mov $0x1800,%cx
    0xfc, // cld
    0xf3, 0xab, // rep stos %ax,%es:(%di)
    0x66, 0xc7, 0x06, 0x00, 0x10, 0x03, 0x20, 0x00, 0x00, // movl $0x2003,0x1000
    0x66, 0xc7, 0x06, 0x00, 0x20, 0x03, 0x30, 0x00, 0x00, // movl $0x3003,0x2000
    0x66, 0xc7, 0x06, 0x00, 0x30, 0x83, 0x00, 0x00, 0x00, // movl $0x83,0x3000
    0x2e, 0x66, 0x0f, 0x01, 0x16, 0xd8, 0xe0, // lgdtl %cs:-0x1f28
    // CR4: PAE and SSE; CR3: the tables; EFER: long mode; CR0: protection and paging.
    0x66, 0xb8, 0x20, 0x00, 0x00, 0x00, // mov $0x20,%eax
    0x66, 0x0d, 0x00, 0x06, 0x00, 0x00, // or $0x600,%eax
    0x0f, 0x22, 0xe0, // mov %eax,%cr4
    0x66, 0xb8, 0x00, 0x10, 0x00, 0x00, // mov $0x1000,%eax
    0x0f, 0x22, 0xd8, // mov %eax,%cr3
    0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0, // mov $0xc0000080,%ecx
    0x0f, 0x32, // rdmsr
    0x66, 0x0d, 0x00, 0x01, 0x00, 0x00, // or $0x100,%eax
    0x0f, 0x30, // wrmsr
    0x0f, 0x20, 0xc0, // mov %cr0,%eax
    0x66, 0x25, 0xff, 0xff, 0xff, 0x9f, // and $0x9fffffff,%eax
    0x66, 0x83, 0xe0, 0xfb, // and $0xfffffffb,%eax
    0x66, 0x0d, 0x03, 0x00, 0x00, 0x80, // or $0x80000003,%eax
    0x0f, 0x22, 0xc0, // mov %eax,%cr0
    0x66, 0xea, 0x7d, 0xe0, 0x0f, 0x00, 0x08, 0x00, // ljmpl $0x8,$0xfe07d
    // 64-bit: count to 40 million in a vector register and through the stack, then compare.
    0xb8, 0x10, 0x00, 0x00, 0x00, // mov $0x10,%eax
    0x8e, 0xd8, // mov %eax,%ds
    0x8e, 0xd0, // mov %eax,%ss
    0xbc, 0x00, 0x70, 0x00, 0x00, // mov $0x7000,%esp
    0xb9, 0x00, 0x5a, 0x62, 0x02, // mov $0x2625a00,%ecx
    0x66, 0x0f, 0xef, 0xc0, // pxor %xmm0,%xmm0
    0x66, 0x0f, 0x76, 0xc9, // pcmpeqd %xmm1,%xmm1
    0x66, 0x0f, 0xd4, 0xc1, // paddq %xmm1,%xmm0
    0x51, // push %rcx
    0x58, // pop %rax
    0xff, 0xc9, // dec %ecx
    0x75, 0xf6, // jne 98
    0x66, 0x48, 0x0f, 0x7e, 0xc0, // movq %xmm0,%rax
    0x48, 0xf7, 0xd8, // neg %rax
    0x48, 0x3d, 0x00, 0x5a, 0x62, 0x02, // cmp $0x2625a00,%rax
    0xb0, 0x10, // mov $0x10,%al
    0x74, 0x02, // je b6
    0xb0, 0x11, // mov $0x11,%al
    0x66, 0xba, 0x01, 0x05, // mov $0x501,%dx
    0xee, // out %al,(%dx)
    0xf4, // hlt
    0xeb, 0xfd, // jmp bb
    0x66, 0x90, // padding
    // Descriptors: none, 64-bit code, data; then their size and address.
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9a, 0xaf, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x92, 0xcf, 0x00,
    0x17, 0x00, 0xc0, 0xe0, 0x0f, 0x00,
];

#[cfg(test)]
mod tests {
    use super::*;

    const QEMU: &str = "qemu-system-x86_64";

    #[tokio::test]
    async fn emulation_runs_the_probe_guest() {
        assert_eq!(run_guest(Path::new(QEMU), "tcg,tb-size=8", EMULATION_TIMEOUT).await, Ok(()));
    }

    #[tokio::test]
    async fn a_guest_that_does_not_finish_is_given_up() {
        let hung = run_guest(Path::new(QEMU), "tcg,tb-size=8", Duration::from_millis(1)).await;
        assert_eq!(hung, Err("a 64-bit guest hung for 1ms".to_owned()));
    }

    #[tokio::test]
    async fn what_qemu_says_is_the_reason() {
        let reason = run_guest(Path::new(QEMU), "nonsense", EMULATION_TIMEOUT).await.unwrap_err();
        assert!(reason.contains("exit status: 1") && reason.contains("nonsense"), "{reason}");
        let error = probe(Path::new("/nonexistent/qemu"), Duration::from_secs(1)).await.unwrap_err();
        assert!(error.to_string().contains("/nonexistent/qemu"), "{error}");
    }

    #[tokio::test]
    async fn the_probe_finds_kvm_or_says_why_not() {
        let found = probe(Path::new(QEMU), Duration::from_millis(800)).await.unwrap();
        match found.accel {
            Accel::Kvm => assert_eq!(found.reason, None),
            Accel::Tcg { .. } => assert!(found.reason.is_some_and(|reason| !reason.is_empty())),
        }
    }
}

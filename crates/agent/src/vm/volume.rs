//! The bytes behind a volume, opened: a claim's, a clone's, a new file's, or a CD's in memory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use croft_api::kubevirt::{ContainerDiskSource, HostDisk, PersistentVolumeClaimInfo, VirtualMachineInstance, Volume};
use rustix::fs::{MemfdFlags, OFlags, memfd_create};

use super::host::{Attached, Host, ImageWanted, Lacking};
use super::machine::bytes;
use super::seed;

/// Some guests take a disk that ends before the places where file systems keep their names for an empty drive.
const SMALLEST_CD: u64 = 1 << 20;

/// A volume that is ready to be given to QEMU.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    pub(super) is_block: bool,
    pub(super) is_read_only: bool,
    pub(super) is_direct: bool,
    pub(super) block_bytes: Option<u32>,
    pub(super) size_bytes: u64,
    pub(super) claim: Option<PersistentVolumeClaimInfo>,
}

/// The claim that a volume is made of, if it is.
pub(super) fn claim_of(volume: &Volume) -> Option<&str> {
    let claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str());
    claim.or_else(|| volume.data_volume.as_ref().map(|source| source.name.as_str()))
}

/// Whether a volume came, or may go, while the guest runs.
pub(super) fn is_hotpluggable(volume: &Volume) -> bool {
    let claim = volume.persistent_volume_claim.as_ref().and_then(|source| source.hotpluggable);
    let data = volume.data_volume.as_ref().and_then(|source| source.hotpluggable);
    claim == Some(true) || data == Some(true)
}

/// Opens a volume, making what it is made of if need be. A disk that is only read is opened for reading only.
pub(super) async fn open(
    host: &Host,
    vmi: &VirtualMachineInstance,
    volume: &Volume,
    is_only_read: bool,
) -> Result<Opened, Lacking> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let scratch = host.scratch_dir(uid).join(format!("{}.raw", volume.name));
    if let Some(claim) = claim_of(volume) {
        let mut attached = host.storage.attach(namespace, claim)?;
        let is_claim_read_only = volume.persistent_volume_claim.as_ref().and_then(|source| source.read_only);
        attached.is_read_only |= is_only_read || is_claim_read_only == Some(true);
        let name = volume.name.clone();
        return blocking(&name, move || open_attached(attached)).await;
    }
    if let Some(image) = seed::image(&host.client, vmi, volume).await? {
        return blocking(&volume.name, move || open_memory(&image, is_only_read)).await;
    }
    if let Some(source) = &volume.ephemeral {
        let claim = source.persistent_volume_claim.as_ref();
        let Some(claim) = claim else { return unsupported(volume, "names no claim") };
        let attached = host.storage.attach(namespace, &claim.claim_name)?;
        return open_clone(&volume.name, attached.path, scratch, is_only_read).await;
    }
    if let Some(source) = &volume.container_disk {
        let path = host.images.ensure(&image_wanted(namespace, source)).await?;
        return open_clone(&volume.name, path, scratch, is_only_read).await;
    }
    if let Some(source) = &volume.empty_disk {
        let size = bytes("emptyDisk.capacity", &source.capacity).map_err(|refusal| Lacking::ever(refusal.0))?;
        return blocking(&volume.name, move || {
            make_file(&scratch, size)?;
            open_file(&scratch, is_only_read)
        })
        .await;
    }
    if let Some(source) = &volume.host_disk {
        let (root, source) = (host.disk_root.clone(), source.clone());
        return blocking(&volume.name, move || open_host_disk(&root, &source, is_only_read)).await;
    }
    unsupported(volume, "has no source that this node offers")
}

fn unsupported<T>(volume: &Volume, what: &str) -> Result<T, Lacking> {
    Err(Lacking::ever(format!("volume {} {what}", volume.name)))
}

fn image_wanted(namespace: &str, source: &ContainerDiskSource) -> ImageWanted {
    ImageWanted {
        namespace: namespace.to_owned(),
        image: source.image.clone(),
        pull_policy: source.image_pull_policy.clone(),
        pull_secret: source.image_pull_secret.clone(),
        path: source.path.clone(),
        is_disk: true,
    }
}

/// Runs what touches files off the workers, and says which volume failed.
async fn blocking(volume: &str, work: impl FnOnce() -> io::Result<Opened> + Send + 'static) -> Result<Opened, Lacking> {
    let outcome = match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(io::Error::other(error)),
    };
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => {
            Lacking::Yet { reason: "StorageFull", message: format!("volume {volume}: {error}") }
        }
        _ => Lacking::ever(format!("volume {volume}: {error}")),
    })
}

fn open_attached(attached: Attached) -> io::Result<Opened> {
    let opened = open_file(&attached.path, attached.is_read_only)?;
    Ok(Opened { size_bytes: attached.size_bytes, claim: Some(attached.claim), ..opened })
}

/// Past the page cache where the file system can do that; tmpfs and some others cannot.
fn open_file(path: &Path, is_read_only: bool) -> io::Result<Opened> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    let open = |flags: i32| OpenOptions::new().read(true).write(!is_read_only).custom_flags(flags).open(path);
    let (file, is_direct) = match open(direct) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => (open(0)?, false),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    let is_block = meta.file_type().is_block_device();
    if !is_block && !meta.is_file() {
        return Err(io::Error::other(format!("{} is neither a file nor a block device", path.display())));
    }
    let size_bytes = if is_block { io::Seek::seek(&mut &file, io::SeekFrom::End(0))? } else { meta.len() };
    let block_bytes = u32::try_from(meta.blksize()).ok().filter(|_| !is_block).or_else(|| logical_block(&meta));
    Ok(Opened { fd: file.into(), is_block, is_read_only, is_direct, block_bytes, size_bytes, claim: None })
}

/// What a block device says of itself.
fn logical_block(meta: &std::fs::Metadata) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/logical_block_size"));
    text.ok()?.trim().parse().ok()
}

/// A file that is nowhere on disk. It lives as long as QEMU holds it.
fn open_memory(content: &[u8], is_read_only: bool) -> io::Result<Opened> {
    let mut file = File::from(memfd_create("croft-volume", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    let size_bytes = u64::try_from(content.len()).unwrap_or(u64::MAX).max(SMALLEST_CD);
    // A hole, which takes no memory.
    file.set_len(size_bytes)?;
    let fd: OwnedFd = if is_read_only {
        // Sets of descriptors are looked through for one that was opened just so.
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into()
    } else {
        file.into()
    };
    Ok(Opened { fd, is_block: false, is_read_only, is_direct: false, block_bytes: None, size_bytes, claim: None })
}

async fn open_clone(volume: &str, from: PathBuf, to: PathBuf, is_read_only: bool) -> Result<Opened, Lacking> {
    blocking(volume, move || {
        clone(&from, &to)?;
        open_file(&to, is_read_only)
    })
    .await
}

/// A private copy, which costs nothing where the file system shares blocks. Made anew if an earlier try left one.
pub(super) fn clone(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = create(to)?;
    if croft_block::reflink(&source, &target)? { Ok(()) } else { croft_block::copy_sparse(&source, &target) }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(path)
}

fn make_file(path: &Path, size_bytes: u64) -> io::Result<()> {
    const SECTOR: u64 = 512;
    create(path)?.set_len(size_bytes.next_multiple_of(SECTOR))
}

/// A file of the host's, below the one directory that the operator has set aside for this. Users name these files, and
/// we open them as root: so nothing outside can be reached, not by `..`, and not by a link.
fn open_host_disk(root: &Path, source: &HostDisk, is_read_only: bool) -> io::Result<Opened> {
    let path = Path::new(&source.path);
    let relative = path.strip_prefix(root).ok().filter(|rest| {
        rest.components().next().is_some() && rest.components().all(|part| matches!(part, Component::Normal(_)))
    });
    let Some(relative) = relative else {
        return Err(io::Error::other(format!("host disks are files below {}, not {}", root.display(), source.path)));
    };
    if source.type_ == "DiskOrCreate" && !path.exists() {
        let capacity = source.capacity.as_ref().ok_or_else(|| io::Error::other("hostDisk: no capacity is given"))?;
        let size = bytes("hostDisk.capacity", capacity).map_err(io::Error::other)?;
        reject_links(root, relative)?;
        make_file(path, size)?;
    }
    reject_links(root, relative)?;
    open_file(path, is_read_only)
}

/// Only root writes below the directory, so what is looked at stays as it was seen.
fn reject_links(root: &Path, relative: &Path) -> io::Result<()> {
    let mut path = root.to_owned();
    for part in relative.components() {
        path.push(part);
        match path.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => {
                return Err(io::Error::other(format!("{} is a link", path.display())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_disks_stay_in_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("disks");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("out")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("link")).unwrap();
        let disk = |path: &Path, type_: &str| HostDisk {
            path: path.display().to_string(),
            type_: type_.into(),
            capacity: Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity("1Mi".into())),
            shared: None,
        };
        for bad in ["/etc/passwd", "/etc/shadow", ""] {
            assert!(open_host_disk(&root, &disk(Path::new(bad), "Disk"), true).is_err(), "{bad}");
        }
        for bad in ["../secret", "out/secret", "link", "missing", ""] {
            assert!(open_host_disk(&root, &disk(&root.join(bad), "Disk"), true).is_err(), "{bad}");
        }
        assert!(open_host_disk(&root, &disk(&root.join("out/new"), "DiskOrCreate"), false).is_err());
        let made = open_host_disk(&root, &disk(&root.join("new.img"), "DiskOrCreate"), false).unwrap();
        assert_eq!(made.size_bytes, 1 << 20);
        assert!(!made.is_read_only);
    }

    #[test]
    fn a_clone_is_a_copy_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("a/to"));
        std::fs::write(&from, [7; 5000]).unwrap();
        clone(&from, &to).unwrap();
        std::fs::write(&from, "changed").unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), [7; 5000]);
        clone(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"changed");
    }

    #[test]
    fn a_cd_in_memory_is_opened_as_it_is_used() {
        for is_read_only in [true, false] {
            let opened = open_memory(b"abc", is_read_only).unwrap();
            let flags = rustix::fs::fcntl_getfl(&opened.fd).unwrap();
            assert_eq!(flags.contains(OFlags::RDWR), !is_read_only);
            assert_eq!(opened.size_bytes, SMALLEST_CD);
        }
    }
}

//! What the suites about disks and images share: objects to create, and what the node has of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use croft_testkit::{Client, Croft};
use serde_json::{Value, json};

use crate::machines::{BOOT, CLAIMS, IMAGES, becomes, condition};

pub const DATA_VOLUMES: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";
pub const DATA_SOURCES: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datasources";
pub const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub const BLOCK_DEVICES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/longhorn-system/blockdevices";

/// Creates an object, which must be taken.
pub async fn made(client: &Client, path: &str, object: &Value) -> Value {
    client.post(path, object).await.expect("an answer").ok().unwrap_or_else(|err| panic!("{path}: {err:#}"))
}

pub async fn deleted(client: &Client, path: &str) {
    client.delete(path).await.expect("an answer").ok().unwrap_or_else(|err| panic!("{path}: {err:#}"));
}

pub async fn patched(client: &Client, path: &str, change: &Value) -> Value {
    let answer = client.patch(path, "merge-patch", change).await.expect("an answer");
    answer.ok().unwrap_or_else(|err| panic!("{path}: {err:#}"))
}

pub fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": class,
                 "resources": {"requests": {"storage": size}}}})
}

pub fn data_volume(name: &str, size: &str, source: &Value) -> Value {
    json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": name},
        "spec": {"source": source, "storage": {"storageClassName": "harvester-longhorn",
                 "resources": {"requests": {"storage": size}}}}})
}

pub fn image(name: &str, spec: &Value) -> Value {
    let mut image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": name}, "spec": spec});
    image["spec"]["displayName"] = json!(name);
    image
}

pub async fn phase_becomes(client: &Client, name: &str, phase: &str) -> Value {
    let path = format!("{DATA_VOLUMES}/{name}");
    becomes(client, &path, phase, BOOT, |volume| volume["status"]["phase"] == phase).await
}

/// A claim once it has its volume.
pub async fn bound(client: &Client, name: &str) -> Value {
    let path = format!("{CLAIMS}/{name}");
    becomes(client, &path, "bound", BOOT, |claim| claim["status"]["phase"] == "Bound").await
}

/// An image once it is known how its import went.
pub async fn imported(client: &Client, name: &str) -> Value {
    let is_over = |image: &Value| condition(image, "Imported").is_some_and(|imported| imported["status"] != "Unknown");
    becomes(client, &format!("{IMAGES}/{name}"), "imported or failed", BOOT, is_over).await
}

/// The file of a claim's volume in the node's own pool.
pub async fn volume_file(server: &Croft, client: &Client, name: &str) -> PathBuf {
    let claim = bound(client, name).await;
    let volume = claim["spec"]["volumeName"].as_str().expect("a volume").to_owned();
    server.data_dir().join("pool/volumes").join(format!("{volume}.raw"))
}

pub fn image_file(server: &Croft, image: &Value) -> PathBuf {
    let uid = image["metadata"]["uid"].as_str().expect("a uid");
    server.data_dir().join("pool/images").join(format!("{uid}.raw"))
}

/// A disk of 16 MiB with something in it here and there.
pub fn disk() -> Vec<u8> {
    let mut disk = vec![0; 16 << 20];
    let mut state = 1_u64;
    for place in [0, 5 << 20, (16 << 20) - (1 << 20)] {
        for byte in &mut disk[place..place + (1 << 20)] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = state.to_be_bytes()[0];
        }
    }
    disk
}

/// Whether it is this, and zeroes up to this size.
pub fn begins_with(content: &[u8], start: &[u8], size: usize) -> bool {
    content.len() == size && content.starts_with(start) && content[start.len()..].iter().all(|byte| *byte == 0)
}

/// Runs a program, which must succeed.
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// A raw disk in another format, by qemu-img.
pub fn converted(raw: &Path, format: &str) -> Result<Vec<u8>> {
    let target = raw.with_extension(format);
    run("qemu-img", &["convert", "-f", "raw", "-O", format, text(raw), text(&target)])?;
    Ok(std::fs::read(target)?)
}

/// A CD with one file.
pub fn disc(name: &str, content: &str) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let (root, iso) = (dir.path().join("root"), dir.path().join("cd.iso"));
    std::fs::create_dir(&root)?;
    std::fs::write(root.join(name), content)?;
    run("xorriso", &["-as", "mkisofs", "-quiet", "-o", text(&iso), text(&root)])?;
    Ok(std::fs::read(iso)?)
}

/// A block device that is a file; gone when it is dropped.
#[derive(Debug)]
pub struct LoopDevice {
    pub path: String,
    _file: tempfile::NamedTempFile,
}

impl LoopDevice {
    pub fn new(mib: u64) -> Result<Self> {
        let file = tempfile::NamedTempFile::new()?;
        file.as_file().set_len(mib << 20)?;
        let path = run("losetup", &["--find", "--show", text(file.path())])?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // One that is still mounted goes when it is unmounted.
        if let Err(err) = run("losetup", &["--detach", &self.path]) {
            eprintln!("{err:#}");
        }
    }
}

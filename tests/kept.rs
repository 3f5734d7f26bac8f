//! What the suites about backups share: targets, machines that are kept, and what becomes of them.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use croft_testkit::{Client, Croft};
use serde_json::{Value, json};

use crate::machines::{BOOT, CLAIMS, becomes, create, empty, is_true};
use crate::storage::{begins_with, claim, made, patched, run, text, volume_file};

pub const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
pub const HEALTH: &str = "/v1/harvester/backuptarget/healthz";
pub const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";
pub const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
pub const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
pub const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
pub const SIZE: usize = 24 << 20;

pub async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().expect("it is there")
}

/// Looked at every second, so that nobody waits for it.
pub async fn set_target(client: &Client, dir: &Path) {
    let value = json!({"type": "directory", "endpoint": format!("file://{}", dir.display()),
        "refreshIntervalInSeconds": 1});
    patched(client, SETTING, &json!({"value": value.to_string()})).await;
}

pub async fn is_usable(client: &Client) {
    becomes(client, SETTING, "usable", BOOT, |setting| is_true(setting, "configured")).await;
}

pub fn backup(name: &str, machine: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": name},
        "spec": {"type": "backup", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine}}})
}

pub fn restore(name: &str, backup: &str, target: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": {"name": name},
        "spec": {"virtualMachineBackupName": backup, "virtualMachineBackupNamespace": "default", "newVM": true,
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target}}})
}

pub async fn ready(client: &Client, name: &str) -> Value {
    let is_ready = |it: &Value| it["status"]["readyToUse"] == true && is_true(it, "MetadataReady");
    becomes(client, &format!("{BACKUPS}/{name}"), "in the target", BOOT, is_ready).await
}

/// The claims that a restore has made.
pub async fn restored(client: &Client, name: &str) -> Vec<String> {
    restored_in(client, "default", name).await
}

pub async fn restored_in(client: &Client, namespace: &str, name: &str) -> Vec<String> {
    let path = format!("{}/{name}", RESTORES.replace("default", namespace));
    let done = becomes(client, &path, "complete", BOOT, |it| it["status"]["complete"] == true).await;
    assert_eq!(done["status"]["progress"], 100, "{done}");
    let claims = done["status"]["restores"].as_array().expect("restores");
    claims
        .iter()
        .map(|one| one["persistentVolumeClaimSpec"]["metadata"]["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// A machine with a disk and no operating system, which does not run.
pub fn machine(name: &str, claim: &str) -> Value {
    let mut machine = empty(name);
    let spec = machine["spec"].as_object_mut().expect("a spec");
    spec.remove("running");
    spec.insert("runStrategy".to_owned(), json!("Halted"));
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]);
    machine
}

pub fn write(path: &Path, content: &[u8], offset: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the volume's file");
    file.write_all_at(content, offset).expect("written");
}

pub async fn holds(server: &Croft, client: &Client, claim: &str, content: &[u8]) {
    let file = volume_file(server, client, claim).await;
    assert!(begins_with(&std::fs::read(file).expect("the volume"), content, SIZE), "{claim}");
}

/// All files below a directory whose names end so.
pub fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found
}

/// A machine on a disk of its own with something on it.
pub async fn machine_with(server: &Croft, client: &Client, name: &str, content: &[u8]) -> PathBuf {
    let disk = format!("{name}-data");
    made(client, CLAIMS, &claim(&disk, "harvester-longhorn", "24Mi")).await;
    let file = volume_file(server, client, &disk).await;
    write(&file, content, 0);
    create(client, &machine(name, &disk)).await;
    file
}

/// A bucket, on a server that checks who asks.
#[derive(Debug)]
pub struct Bucket {
    process: std::process::Child,
    /// It ends when this does.
    _input: Option<std::process::ChildStdin>,
    pub said: Value,
}

impl Bucket {
    pub fn start() -> Self {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let python = std::env::var_os("CROFT_PYTHON");
        let python = python.map_or_else(|| workspace.join("target/venv/bin/python"), PathBuf::from);
        let script = workspace.join("crates/backup/tests/targets/python/s3_server.py");
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("Python runs: `make test` sets it up");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let said = serde_json::from_str(&line).expect("the S3 server says where it is");
        let input = process.stdin.take();
        Self { process, _input: input, said }
    }

    pub fn port(&self) -> u16 {
        self.said["port"].as_u64().and_then(|port| port.try_into().ok()).expect("a port")
    }

    pub fn key(&self) -> &str {
        self.said["secret"].as_str().expect("a key")
    }

    /// Reached by way of this port.
    pub fn target(&self, port: u16, key: &str) -> String {
        json!({"type": "s3", "endpoint": format!("http://127.0.0.1:{port}"), "bucketName": "croft",
            "bucketRegion": "us-east-1", "accessKeyId": self.said["id"], "secretAccessKey": key,
            "refreshIntervalInSeconds": 1})
        .to_string()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a relay does with those who come.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// The server's own.
    Servers,
    /// This status, with this code in its text.
    Refusal(u16, &'static str),
    /// None: they wait.
    Nothing,
}

/// Between Croft and a server: passes everything on, or answers in its place.
#[derive(Debug)]
pub struct Relay {
    pub port: u16,
    answer: tokio::sync::watch::Sender<Answer>,
    /// How many are connected, and how many were at most since the last change.
    crowd: Arc<Mutex<(usize, usize)>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub async fn to(server: u16) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (answer, answers) = tokio::sync::watch::channel(Answer::Servers);
        let crowd = Arc::new(Mutex::new((0, 0)));
        let counted = Arc::clone(&crowd);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (answers, counted) = (answers.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    count(&counted, 1);
                    serve(client, server, answers).await;
                    count(&counted, -1);
                });
            }
        });
        Self { port, answer, crowd, accepting }
    }

    /// With this status, from now on and whatever is asked; `None` is the server's own answers.
    pub fn answers(&self, status: Option<u16>) {
        self.set(status.map_or(Answer::Servers, |status| Answer::Refusal(status, "")));
    }

    pub fn refuses(&self, status: u16, code: &'static str) {
        self.set(Answer::Refusal(status, code));
    }

    /// From now on nobody gets an answer.
    pub fn stalls(&self) {
        self.set(Answer::Nothing);
    }

    fn set(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }

    /// How many were connected at most, since it was asked last.
    pub fn busiest(&self) -> usize {
        let mut crowd = self.crowd.lock().expect("nobody panics with it");
        let most = crowd.1;
        crowd.1 = crowd.0;
        most
    }
}

fn count(crowd: &Mutex<(usize, usize)>, change: isize) {
    let mut crowd = crowd.lock().expect("nobody panics with it");
    crowd.0 = crowd.0.saturating_add_signed(change);
    crowd.1 = crowd.1.max(crowd.0);
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut client: tokio::net::TcpStream, server: u16, mut answers: tokio::sync::watch::Receiver<Answer>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let answer = *answers.borrow_and_update();
    // Whoever is connected is cut off by a change, so that it holds for them too.
    let (status, code) = match answer {
        Answer::Refusal(status, code) => (status, code),
        Answer::Nothing => {
            let _ = answers.changed().await;
            return;
        }
        Answer::Servers => {
            let Ok(mut server) = tokio::net::TcpStream::connect(("127.0.0.1", server)).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                _ = answers.changed() => {}
            }
            return;
        }
    };
    let _ = client.read(&mut [0; 4096]).await;
    let body = if code.is_empty() { String::new() } else { format!("<Error><Code>{code}</Code></Error>") };
    let head = format!("HTTP/1.1 {status} No\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let _ = client.write_all(head.as_bytes()).await;
    let mut rest = vec![0; 65536];
    while client.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

/// A file system that is full soon; gone when it is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    pub dir: tempfile::TempDir,
}

impl SmallDisk {
    pub fn new(size: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let options = format!("size={size}");
        run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", text(dir.path())]).expect("mounted");
        Self { dir }
    }

    pub fn grow(&self, size: &str) {
        run("mount", &["-o", &format!("remount,size={size}"), text(self.dir.path())]).expect("larger");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy", text(self.dir.path())]);
    }
}

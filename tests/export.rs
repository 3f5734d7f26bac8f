//! A real NFS server with one export, in a network of the test's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use croft_testkit::{Client, eventually};
use serde_json::json;

use crate::kept::SETTING;
use crate::storage::{run, text};

const INSIDE: &str = "CROFT_TEST_NFS";

/// Runs this test once more where the ports of a portmapper are free. The first of both has nothing to do but to return.
pub fn is_outside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let this = std::env::current_exe().expect("a path");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]).arg(this).arg(test);
    command.args(["--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    assert!(command.status().expect("unshare runs").success());
    true
}

/// Ended when it is dropped.
#[derive(Debug)]
struct Process(Child);

impl Process {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}: `make test` installs it")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug)]
pub struct Export {
    pub path: PathBuf,
    server: Option<Process>,
    _portmapper: Process,
    /// Goes last.
    dir: tempfile::TempDir,
}

impl Export {
    pub async fn start() -> Self {
        run("ip", &["link", "set", "lo", "up"]).expect("up");
        run("mount", &["-t", "tmpfs", "tmpfs", "/run"]).expect("mounted");
        std::fs::create_dir("/run/rpcbind").expect("a directory");
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let path = dir.path().join("export");
        std::fs::create_dir(&path).expect("a directory");
        let portmapper = Process::start("rpcbind", &["-f", "-w"]);
        // A server that finds no portmapper does not look for one again.
        eventually("the portmapper answers", async || tokio::net::TcpStream::connect("127.0.0.1:111").await).await;
        let server = Some(serve(dir.path(), &path));
        Self { path, server, _portmapper: portmapper, dir }
    }

    /// SIGKILL: what it said to be written stays.
    pub fn kill(&mut self) {
        self.server = None;
    }

    pub fn start_again(&mut self) {
        self.server = Some(serve(self.dir.path(), &self.path));
    }

    /// As soon as the server answers.
    pub async fn set_as_target(&self, client: &Client) {
        let endpoint = format!("nfs://127.0.0.1:{}?nfsOptions=timeo=20", self.path.display());
        let value = json!({"type": "nfs", "endpoint": endpoint, "refreshIntervalInSeconds": 1}).to_string();
        eventually("the server answers", async || {
            let set = client.patch(SETTING, "merge-patch", &json!({"value": value})).await.expect("an answer");
            if set.status == 200 { Ok(()) } else { Err(set.text()) }
        })
        .await;
    }
}

/// Times are not remembered: a test makes files older behind its back.
fn serve(dir: &Path, export: &Path) -> Process {
    let (config, log, pid) = (dir.join("ganesha.conf"), dir.join("log"), dir.join("pid"));
    let settings = format!(
        "NFSv4 {{ Graceless = true; }}\n\
         NFS_CORE_PARAM {{ Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = {0}; Pseudo = {0}; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; \
         Attr_Expiration_Time = 0; Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
        export.display()
    );
    std::fs::write(&config, settings).expect("written");
    Process::start("ganesha.nfsd", &["-F", "-L", text(&log), "-f", text(&config), "-p", text(&pid)])
}

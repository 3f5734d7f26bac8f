//! An export as a target, on a real server with its portmapper, in a network of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use croft_backup::{Fault, Nfs, Target, target};

use crate::kill;
use crate::stage::{self, Disk, again, assert_restores, back_up, blocks_in, request, store};
use crate::whole::everything;

const INSIDE: &str = "CROFT_BACKUP_TEST_NFS";

/// Ended when it is dropped.
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

fn run(program: &str, arguments: &[&str]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program} {arguments:?}");
}

fn ganesha(dir: &Path) -> Process {
    let config = dir.join("ganesha.conf");
    let export = |id: u32, name: &str| {
        let path = dir.join(name);
        format!(
            "EXPORT {{ Export_Id = {id}; Path = {0}; Pseudo = {0}; Access_Type = {1}; Squash = No_Root_Squash; \
             SecType = sys; Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
            path.display(),
            if name == "readonly" { "RO" } else { "RW" },
        )
    };
    let core = "NFSv4 { Graceless = true; }\n\
        NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }\n";
    let exports: String = (1..).zip(["export", "small", "readonly"]).map(|(id, name)| export(id, name)).collect();
    std::fs::write(&config, format!("{core}{exports}")).unwrap();
    let (config, log, pid) = (config.to_str().unwrap(), dir.join("log"), dir.join("pid"));
    let arguments = ["-F", "-L", log.to_str().unwrap(), "-f", config, "-p", pid.to_str().unwrap()];
    Process::start("ganesha.nfsd", &arguments)
}

fn nfs(path: &Path) -> Arc<Nfs> {
    Arc::new(Nfs::new("127.0.0.1", path.to_str().unwrap(), &["timeo=50".into()]).unwrap())
}

/// Until the server answers.
async fn wait_for(target: &dyn Target) {
    let give_up = tokio::time::Instant::now() + Duration::from_secs(30);
    while let Err(error) = target.list("").await {
        assert!(tokio::time::Instant::now() < give_up, "{}", croft_meta::Chain(&error));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_works_and_says_what_is_wrong() {
    if std::env::var_os(INSIDE).is_none() {
        let mut command = again(&["unshare", "--net", "--mount"], "nfs::an_export_works_and_says_what_is_wrong");
        assert!(command.env(INSIDE, "1").status().unwrap().success());
        return;
    }
    run("ip", &["link", "set", "lo", "up"]);
    run("mount", &["-t", "tmpfs", "tmpfs", "/run"]);
    std::fs::create_dir("/run/rpcbind").unwrap();
    let dir = stage::dir();
    for name in ["export", "small", "readonly"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let small = dir.path().join("small");
    run("mount", &["-t", "tmpfs", "-o", "size=4m", "tmpfs", small.to_str().unwrap()]);
    let _rpcbind = Process::start("rpcbind", &["-f", "-w"]);
    let nowhere = target::check(nfs(&dir.path().join("export")).as_ref()).await.unwrap_err();
    assert_eq!(nowhere.fault, Fault::Unreachable, "{}", croft_meta::Chain(&nowhere));

    let server = ganesha(dir.path());
    let export = nfs(&dir.path().join("export"));
    wait_for(export.as_ref()).await;
    everything(export.clone()).await;
    // Without the portmapper, and as Longhorn writes it.
    let options = ["port=2049".to_owned(), "nfsvers=4.2".into(), "soft".into()];
    let direct = Nfs::new("localhost", dir.path().join("export").to_str().unwrap(), &options).unwrap();
    target::check(&direct).await.unwrap();

    let missing = target::check(nfs(&dir.path().join("missing")).as_ref()).await.unwrap_err();
    assert!(matches!(missing.fault, Fault::NoTarget | Fault::Forbidden), "{}", croft_meta::Chain(&missing));
    let denied = target::check(nfs(&dir.path().join("readonly")).as_ref()).await.unwrap_err();
    assert_eq!(denied.fault, Fault::Forbidden, "{}", croft_meta::Chain(&denied));
    let disk = Disk::new(dir.path().join("disk"), 40);
    let full = store(nfs(&small)).write(&request(&disk.path, "pvc-1", "backup-1")).await.unwrap_err();
    assert_eq!(full.fault(), Some(Fault::Full), "{full}");
    assert!(blocks_in(&small).len() < 6);

    let _server = gone_and_back(&export, &disk, server, dir.path()).await;
    kill::points(&kill::Place::Nfs { path: dir.path().join("export") }, 20, 500).await;
}

/// The server is killed, and another started while a backup waits for it.
async fn gone_and_back(export: &Arc<Nfs>, disk: &Disk, server: Process, dir: &Path) -> Process {
    let store = store(export.clone());
    drop(server);
    let impatient = store.clone().with_patience(Duration::ZERO);
    let gone = impatient.write(&request(&disk.path, "pvc-1", "backup-1")).await.unwrap_err();
    assert_eq!(gone.fault(), Some(Fault::Unreachable), "{}", croft_meta::Chain(&gone));
    // In this order: it looks for the server before there is one.
    let (written, server) = tokio::join!(back_up(&store, disk, "pvc-1", "backup-1"), async { ganesha(dir) });
    assert_eq!(written.new_blocks, 6);
    assert_restores(&store, "pvc-1", "backup-1", None, &disk.content).await;
    store.delete_volume("pvc-1").await.unwrap();
    server
}

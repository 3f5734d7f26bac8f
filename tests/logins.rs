//! A server whose admin's password is known, where one logs in, and the command beside its data.

use croft_testkit::{Croft, StoreKind};
use tokio::process::Command;

pub const LOGIN: &str = "/v3-public/localProviders/local?action=login";
pub const PASSWORD: &str = "correct-horse-battery";

#[derive(Debug)]
pub struct World {
    pub server: Croft,
    /// Has the file with the password, which a server that is started again reads again.
    pub dir: tempfile::TempDir,
}

pub async fn start(extra: &[&str]) -> World {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    std::fs::write(&file, PASSWORD).expect("the password is written");
    let option = format!("--admin-password-file={}", file.display());
    let args: Vec<&str> = extra.iter().copied().chain([option.as_str()]).collect();
    let server = Croft::start_with(StoreKind::Embedded, &args).await.expect("the server starts");
    World { server, dir }
}

/// The command, as whoever has the server's data directory runs it; what it said.
pub async fn croft(server: &Croft, args: &[&str]) -> String {
    let out = command(server).args(args).output().await.expect("croft runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

pub fn command(server: &Croft) -> Command {
    let mut command = Command::new(croft_testkit::binary().expect("the program"));
    command.env("CROFT_DATA_DIR", server.data_dir()).env_remove("KUBECONFIG");
    command
}

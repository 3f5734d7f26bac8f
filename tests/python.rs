//! The official Python client. `make` keeps it in `target/venv`; `CROFT_PYTHON` names another interpreter that has it.

use std::path::{Path, PathBuf};

use croft_e2e::on_every_server;

on_every_server!(the_python_client_works);

fn interpreter() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace");
    std::env::var_os("CROFT_PYTHON").map_or_else(|| workspace.join("target/venv/bin/python"), PathBuf::from)
}

mod body {
    use std::path::Path;

    use croft_testkit::Server;

    pub(crate) async fn the_python_client_works(server: &Server) {
        let python = super::interpreter();
        assert!(python.exists(), "no Python client at {}: `make test` sets it up", python.display());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/client.py");
        let mut command = tokio::process::Command::new(python);
        let command = command.arg(script).arg(&server.kubeconfig).kill_on_drop(true);
        let out = tokio::time::timeout(croft_testkit::patience() * 4, command.output()).await;
        let out = out.expect("it ends in time").expect("it starts");
        let (said, wrong) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{said}\n{wrong}");
    }
}

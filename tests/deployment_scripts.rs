//! What scripts that deploy Harvester do once it runs: they reach it through a forwarder and take the kubeconfig from the
//! place where RKE2 has it.

use std::process::Stdio;

use croft_testkit::{Croft, Kubectl, StoreKind, eventually, free_port};
use tokio::process::Command;

#[tokio::test]
async fn a_server_is_found_behind_a_forwarder() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("rancher/rke2/rke2.yaml");
    let mut croft =
        Croft::start_with(StoreKind::Embedded, &["--kubeconfig-link", link.to_str().unwrap()]).await.unwrap();
    let (own, forwarded) = (croft.address().unwrap().port(), free_port().unwrap());
    let _socat = Command::new("socat")
        .arg(format!("TCP-LISTEN:{forwarded},bind=127.0.0.1,reuseaddr,fork"))
        .arg(format!("TCP:127.0.0.1:{own}"))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    eventually("the server answers", async || {
        let url = format!("https://127.0.0.1:{forwarded}/ping");
        let said = Command::new("curl").args(["-ks", &url]).output().await.unwrap();
        if said.stdout == b"pong" { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;

    // As the scripts write it, with sed.
    let copy = dir.path().join("copy.yaml");
    let edited = Command::new("sed")
        .args(["-e", "s/certificate-authority-data:.*/insecure-skip-tls-verify: true/"])
        .args(["-e", &format!("s/127.0.0.1:{own}/localhost:{forwarded}/")])
        .arg(&link)
        .output()
        .await
        .unwrap();
    std::fs::write(&copy, edited.stdout).unwrap();
    let kubectl = Kubectl::new(&copy).unwrap();
    assert!(kubectl.ok(&["get", "namespaces"]).await.stdout.contains("harvester-system"));
    let watching = kubectl.ok(&["get", "namespaces", "--watch", "--request-timeout=2s"]).await.stdout;
    assert!(watching.contains("harvester-system"), "{watching}");

    croft.restart().await.unwrap();
    assert_eq!(std::fs::read_link(&link).unwrap(), croft.data_dir().join("kubeconfig"));
}

//! The program as a shell sees it: output, complaints and exit codes, without a server.

use std::path::Path;
use std::process::{Command, Output};

use croft_pki::kubeconfig::Credentials;
use croft_pki::{Kubeconfig, Secret};

fn croft(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let inherited = std::env::vars().filter(|(name, _)| !name.starts_with("CROFT_"));
    Command::new(env!("CARGO_BIN_EXE_croft"))
        .args(args)
        .env_clear()
        .envs(inherited)
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn admin_kubeconfig(dir: &Path) {
    let kubeconfig = Kubeconfig {
        // A port that nobody listens on.
        server: "https://127.0.0.1:1".to_owned(),
        ca_pem: String::new(),
        cluster: "croft".to_owned(),
        user: "admin".to_owned(),
        credentials: Credentials::Token(Secret::new("t")),
    };
    kubeconfig.write(&dir.join("kubeconfig")).unwrap();
}

#[test]
fn version_for_people_and_programs() {
    let output = croft(&["version"], &[]);
    assert!(output.status.success() && stdout(&output).starts_with("croft "), "{output:?}");
    let output = croft(&["version", "-o", "json"], &[]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn completion_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = croft(&["completion", shell], &[]);
        assert!(output.status.success() && stdout(&output).contains("kubeconfig"), "{shell}: {output:?}");
    }
    assert_eq!(croft(&["completion", "powershell"], &[]).status.code(), Some(2));
}

#[test]
fn wrong_use_is_code_2_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("croft.yaml");
    std::fs::write(&config, "datadir: /x\n").unwrap();
    let config = config.to_str().unwrap();
    for (args, environment, expected) in [
        (&["server", "--config", config][..], &[][..], "did you mean \"data-dir\"?"),
        (&["server"], &[("CROFT_CONFIG", config)], "did you mean \"data-dir\"?"),
        (&["server", "--store", "etcd"], &[], "needs --etcd-endpoints"),
        (&["server"], &[("CROFT_STORE", "etcd")], "needs --etcd-endpoints"),
        (&["server"], &[("CROFT_LISTEN", "nowhere")], "is not an address and a port"),
        (&["server", "--data-dri", "/x"], &[], "--data-dir"),
        (&["token", "create"], &[], "--user"),
        (&["token", "create", "--user", "system:admin"], &[], "use --service-account"),
        (&["token", "create", "--service-account", "builder"], &[], "write NAMESPACE/NAME"),
        (&["token", "create", "--service-account", "a/b", "--duration", "0s"], &[], "create a Secret of type"),
        (&["kubeconfig", "--server", "ftp://x"], &[], "is not an address such as"),
        (&["kubeconfig", "--user", "system:admin"], &[], "use --service-account"),
        (&[], &[], "Usage: croft"),
    ] {
        let output = croft(args, environment);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn flag_wins_over_environment_wins_over_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("croft.yaml");
    std::fs::write(&config, "store: etcd\netcd-endpoints: from-file\n").unwrap();
    let config = config.to_str().unwrap();
    for (args, environment, expected) in [
        (&["server", "--config", config][..], &[][..], "from-file"),
        (&["server", "--config", config], &[("CROFT_ETCD_ENDPOINTS", "from-env")], "from-env"),
        (
            &["server", "--config", config, "--etcd-endpoints", "from-flag"],
            &[("CROFT_ETCD_ENDPOINTS", "from-env")],
            "from-flag",
        ),
    ] {
        // None of the three is an address, so the complaint tells which one was looked at.
        let complaint = stderr(&croft(args, environment));
        assert!(complaint.contains(&format!("\"{expected}\" is not an address")), "{complaint}");
    }
}

#[test]
fn kubeconfig_is_the_admins_with_another_address() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    let output = croft(&["kubeconfig", "--data-dir", data_dir], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("does not exist; start \"croft server\" once"), "{}", stderr(&output));

    admin_kubeconfig(dir.path());
    let output = croft(&["kubeconfig", "--server", "https://croft.example"], &[("CROFT_DATA_DIR", data_dir)]);
    let printed = Kubeconfig::from_yaml(&stdout(&output)).unwrap();
    assert_eq!((printed.server.as_str(), printed.user.as_str()), ("https://croft.example", "admin"));
}

#[test]
fn absent_server_is_named() {
    let dir = tempfile::tempdir().unwrap();
    admin_kubeconfig(dir.path());
    let data_dir = dir.path().to_str().unwrap();
    let output = croft(&["token", "create", "--data-dir", data_dir, "--user", "jane"], &[]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = stderr(&output);
    assert!(complaint.contains("cannot talk to the server at https://127.0.0.1:1 (is it running?)"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

//! A full Debian guest: the real cloud-init, the real agent, and what users do with such a machine. `make test-debian`.

#![cfg(feature = "debian")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use croft_e2e::machines::{
    INSTANCES, MACHINES, becomes, create, croft, croft_ok, is_gone, is_true, status_becomes, subresource,
};
use croft_testkit::{Client, Croft, StoreKind, eventually_within};
use serde_json::{Value, json};

/// It is emulated, and starts all of systemd.
const BOOT: Duration = Duration::from_mins(8);
const GRACE: Duration = Duration::from_mins(4);
const MAC: &str = "02:00:00:00:0d:eb";

fn user_data(key: &str) -> String {
    format!(
        "#cloud-config\n\
         hostname: orchard\n\
         locale: false\n\
         users:\n\
         - default\n\
         - name: gardener\n  \
           shell: /bin/bash\n  \
           sudo: 'ALL=(ALL) NOPASSWD:ALL'\n  \
           ssh_authorized_keys: ['{key}']\n\
         write_files: [{{path: /srv/told, content: hello, permissions: '0640'}}]\n\
         runcmd: ['echo ran > /srv/ran']\n"
    )
}

fn network_data() -> String {
    format!(
        "version: 2\nethernets:\n  id0:\n    match: {{macaddress: '{MAC}'}}\n    dhcp4: true\n    \
         addresses: [192.0.2.7/24]\n"
    )
}

fn machine(key: &str) -> Value {
    let claim = json!([{
        "metadata": {"name": "orchard-root", "annotations": {"harvesterhci.io/imageId": "default/debian"}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "longhorn-debian",
                 "resources": {"requests": {"storage": "4Gi"}}},
    }]);
    let keys =
        json!({"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}});
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "orchard", "annotations": {"harvesterhci.io/volumeClaimTemplates": claim.to_string()}},
        "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {
            "terminationGracePeriodSeconds": GRACE.as_secs(),
            "domain": {
                "cpu": {"cores": 2}, "memory": {"guest": "768Mi"},
                "devices": {
                    "rng": {},
                    "disks": [
                        {"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}},
                        {"name": "seed", "disk": {"bus": "virtio"}},
                    ],
                    "interfaces": [{"name": "default", "masquerade": {}, "macAddress": MAC}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "accessCredentials": [keys],
            "readinessProbe": {"guestAgentPing": {}, "periodSeconds": 2, "timeoutSeconds": 5},
            "livenessProbe": {"tcpSocket": {"port": 22}, "periodSeconds": 5, "failureThreshold": 200},
            "volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": "orchard-root"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": user_data(key), "networkData": network_data()}},
            ],
        }}},
    })
}

fn key_pair(dir: &Path, name: &str) -> (String, String) {
    let path = dir.join(name);
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&path).status();
    assert!(made.expect("ssh-keygen").success());
    let public = std::fs::read_to_string(path.with_extension("pub")).expect("a public key");
    (path.display().to_string(), public.trim().to_owned())
}

/// Commands in the guest, by SSH as its users do.
struct Ssh<'a> {
    server: &'a Croft,
    key: &'a str,
}

impl Ssh<'_> {
    async fn run(&self, user: &str, command: &str) -> Result<String, String> {
        let whom = format!("{user}@orchard");
        let quiet = ["-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes"];
        let mut args =
            vec!["vm", "ssh", &whom, "--", "-i", self.key, "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=30"];
        args.extend(quiet);
        args.push(command);
        let output = croft(self.server, &args).await.map_err(|error| format!("{error:#}"))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(format!("{command}: {} {text} {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    /// Once the guest is there to answer.
    async fn ok(&self, command: &str) -> String {
        let said = eventually_within(BOOT, async || self.run("gardener", command).await);
        said.await.unwrap_or_else(|error| panic!("{error}"))
    }
}

async fn instance(client: &Client, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    becomes(client, &format!("{INSTANCES}/orchard"), what, BOOT, is_so).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debian_guest_does_what_it_is_told() {
    let server = Croft::start_node(StoreKind::Embedded, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let image = croft_e2e::machines::guest_image().expect("the small guest").with_file_name("debian.qcow2");
    assert!(image.is_file(), "no guest at {}: `make test-debian` builds it", image.display());
    croft_ok(&server, &["image", "upload", "debian", image.to_str().expect("a path")]).await.expect("uploaded");
    let dir = tempfile::tempdir().expect("a directory");
    let (key_file, key) = key_pair(dir.path(), "gardener");
    let (other_file, other) = key_pair(dir.path(), "default-user");
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"key": other}});
    client.post("/api/v1/namespaces/default/secrets", &secret).await.expect("an answer").ok().expect("a secret");
    create(&client, &machine(&key)).await;
    let ssh = Ssh { server: &server, key: &key_file };

    assert_eq!(ssh.ok("hostname").await, "orchard");
    let result = ssh.ok("cloud-init status --wait >/dev/null; cat /run/cloud-init/result.json").await;
    let result: Value = serde_json::from_str(&result).expect("JSON");
    assert!(result["v1"]["datasource"].as_str().is_some_and(|name| name.contains("NoCloud")), "{result}");
    assert_eq!(result["v1"]["errors"], json!([]), "{result}");
    assert_eq!(ssh.ok("sudo cat /srv/told && sudo stat -c %a /srv/told").await, "hello640");
    assert_eq!(ssh.ok("cat /srv/ran").await, "ran");
    assert_eq!(ssh.ok("sudo id -u").await, "0");
    let addresses = ssh.ok("ip -4 -o addr").await;
    assert!(addresses.contains("192.0.2.7/24") && addresses.contains("10."), "{addresses}");
    let bytes: u64 = ssh.ok("df -B1 --output=size / | tail -n 1").await.trim().parse().expect("a number");
    assert!(bytes > 3 << 30, "the root file system has grown with its disk: {bytes}");
    // The key of the credential is that of the image's own user.
    let default = Ssh { server: &server, key: &other_file };
    assert_eq!(default.run("debian", "whoami").await, Ok("debian".to_owned()));

    agent(&client).await;
    reboot(&client, &ssh).await;
    power_off(&client).await;
}

async fn agent(client: &Client) {
    let shown = instance(client, "with its agent", |one| is_true(one, "AgentConnected") && is_true(one, "Ready")).await;
    assert_eq!(shown["status"]["guestOSInfo"]["id"], "debian", "{}", shown["status"]["guestOSInfo"]);
    let ask = async |what: &str| {
        let answer = client.get(&subresource("virtualmachineinstances", "orchard", what)).await.expect("an answer");
        answer.ok().unwrap_or_else(|error| panic!("{what}: {error:#}"))
    };
    assert_eq!(ask("guestosinfo").await["hostname"], "orchard");
    let disks = ask("filesystemlist").await;
    assert!(disks["items"].as_array().is_some_and(|all| all.iter().any(|one| one["mountPoint"] == "/")), "{disks}");
    assert!(ask("userlist").await["items"].is_array());
}

async fn reboot(client: &Client, ssh: &Ssh<'_>) {
    let boot = ssh.ok("cat /proc/sys/kernel/random/boot_id").await;
    let before = instance(client, "running", |one| one["status"]["phase"] == "Running").await;
    let answer = client.put(&subresource("virtualmachineinstances", "orchard", "softreboot"), &json!({})).await;
    assert_eq!(answer.expect("an answer").status, 200);
    let rebooted = eventually_within(BOOT, async || {
        let now = ssh.run("gardener", "cat /proc/sys/kernel/random/boot_id").await?;
        if now == boot { Err(format!("still {now}")) } else { Ok(()) }
    });
    rebooted.await.expect("another boot");
    let after = instance(client, "running", |one| one["status"]["phase"] == "Running").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "in the same instance");
}

/// The power button is enough: the guest shuts down long before its grace is over.
async fn power_off(client: &Client) {
    let begun = Instant::now();
    let answer = client.put(&subresource("virtualmachines", "orchard", "stop"), &json!({})).await.expect("an answer");
    assert_eq!(answer.status, 202, "{}", answer.text());
    status_becomes(client, "orchard", "Stopped").await;
    assert!(begun.elapsed() < GRACE, "{:?}", begun.elapsed());
    client.delete(&format!("{MACHINES}/orchard")).await.expect("an answer").ok().expect("deleted");
    is_gone(client, &format!("{MACHINES}/orchard")).await;
}

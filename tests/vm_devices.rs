//! A real Linux guest with every device: what it sees of them, what it is given while it runs, and what it is asked.

use std::process::Command;

use croft_e2e::machines::{
    BOOT, INSTANCES, MACHINES, Shell, becomes, condition, create, croft_ok, guest, in_guest, is_true, merge,
    node_with_image, subresource,
};
use croft_testkit::{Client, Croft, eventually_within};
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const NETWORKS: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";

const OTHER_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA next";

async fn secret(client: &Client, name: &str, data: &Value) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    client.post(SECRETS, &secret).await.expect("an answer").ok().expect("a secret");
}

async fn change_secret(client: &Client, name: &str, data: &Value) {
    let answer = client.patch(&format!("{SECRETS}/{name}"), "merge-patch", &json!({"stringData": data})).await;
    answer.expect("an answer").ok().expect("changed");
}

async fn patch_machine(client: &Client, name: &str, spec: &Value) {
    let change = json!({"spec": {"template": {"spec": spec}}});
    let answer = client.patch(&format!("{MACHINES}/{name}"), "merge-patch", &change).await.expect("an answer");
    answer.ok().expect("patched");
}

async fn instance_becomes(client: &Client, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    becomes(client, &format!("{INSTANCES}/{name}"), what, BOOT, is_so).await
}

/// A pair of keys: where the private one is, and the public one.
fn key_pair(dir: &std::path::Path, name: &str) -> (String, String) {
    let path = dir.join(name);
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&path).status();
    assert!(made.expect("ssh-keygen").success());
    let public = std::fs::read_to_string(path.with_extension("pub")).expect("a public key");
    (path.display().to_string(), public.trim().to_owned())
}

/// A bridge of the host, for as long as the test.
struct Bridge(String);

impl Bridge {
    fn new() -> Self {
        let name = format!("ctb{}", std::process::id() % 1_000_000);
        for args in [["link", "add", &name, "type", "bridge"].as_slice(), &["link", "set", &name, "up"]] {
            assert!(Command::new("ip").args(args).status().expect("ip").success(), "{args:?}");
        }
        Self(name)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["link", "del", &self.0]).status());
    }
}

/// One boot, and all that can be seen in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_sees_its_devices_and_what_it_is_given() {
    let (server, client) = node_with_image().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (_, seed_key) = key_pair(dir.path(), "seed");
    let (agent_file, agent_key) = key_pair(dir.path(), "agent");
    secret(&client, "seed-key", &json!({"key": seed_key})).await;
    secret(&client, "agent-key", &json!({"key": agent_key})).await;
    let mut machine = guest("dev");
    merge(&mut machine["spec"]["template"]["spec"], &full());
    create(&client, &machine).await;
    let mut shell = Shell::log_in(&server, "dev", None).await.expect("a shell");

    hardware(&mut shell).await;
    seed(&mut shell, &seed_key).await;
    readiness(&client, &mut shell).await;
    credentials(&server, &client, &mut shell, (&agent_file, &agent_key)).await;
    interfaces(&client, &mut shell).await;
    reboot(&client, &mut shell).await;
}

fn full() -> Value {
    let from = |name: &str| json!({"secret": {"secretName": name}});
    json!({
        "domain": {
            "cpu": {"sockets": 1, "cores": 2, "threads": 1},
            "memory": {"guest": "256Mi"},
            "firmware": {"uuid": "11111111-2222-3333-4444-555555555555", "serial": "serial-9"},
            "chassis": {"asset": "asset-9"},
            "clock": {"utc": {"offsetSeconds": 0}, "timer": {"rtc": {"tickPolicy": "catchup"}}},
            "devices": {
                "rng": {}, "tpm": {}, "sound": {"name": "s", "model": "ac97"},
                "watchdog": {"name": "w", "i6300esb": {"action": "reset"}},
                "inputs": [{"name": "t1", "type": "tablet", "bus": "usb"}, {"name": "t2", "type": "tablet", "bus": "virtio"}],
                "disks": [
                    {"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}},
                    {"name": "seed", "disk": {"bus": "virtio"}},
                    {"name": "extra", "disk": {"bus": "virtio"}, "serial": "extra-1", "tag": "logs",
                     "blockSize": {"custom": {"logical": 4096, "physical": 4096}}},
                    {"name": "cd", "cdrom": {"bus": "sata"}},
                ],
            },
        },
        "volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "dev-root"}},
            {"name": "seed", "cloudInitConfigDrive": {"userData": "#cloud-config\n"}},
            {"name": "extra", "emptyDisk": {"capacity": "16Mi"}},
            {"name": "cd", "configMap": {"name": "kube-root-ca.crt"}},
        ],
        "accessCredentials": [
            {"sshPublicKey": {"source": from("seed-key"), "propagationMethod": {"configDrive": {}}}},
            {"sshPublicKey": {"source": from("agent-key"), "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}},
            {"userPassword": {"source": from("passwords"), "propagationMethod": {"qemuGuestAgent": {}}}},
        ],
        "readinessProbe": {"httpGet": {"port": 80, "path": "/ready"}, "periodSeconds": 1, "failureThreshold": 1},
        "livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 200},
    })
}

async fn hardware(shell: &mut Shell) {
    assert_eq!(shell.ok("nproc").await, "2");
    for (field, expected) in [
        ("product_serial", "serial-9"),
        ("product_uuid", "11111111-2222-3333-4444-555555555555"),
        ("chassis_asset_tag", "asset-9"),
        ("sys_vendor", "KubeVirt"),
    ] {
        assert_eq!(shell.ok(&format!("cat /sys/class/dmi/id/{field}")).await, expected, "{field}");
    }
    let mut missing = Vec::new();
    for (what, command) in [
        ("the USB tablet", "grep 'QEMU USB Tablet' /sys/bus/usb/devices/*/product"),
        ("the virtio tablet", "grep 'QEMU Virtio Tablet' /proc/bus/input/devices"),
        ("random numbers", "grep -q virtio_rng /sys/class/misc/hw_random/rng_current"),
        ("the watchdog", "test -c /dev/watchdog0"),
        ("the TPM", "test -e /dev/tpm0"),
        ("AC97", "grep -l 0x2415 /sys/bus/pci/devices/*/device"),
        ("the disk by its serial", "grep -l extra-1 /sys/block/vd*/serial"),
        ("its blocks", "grep -l 4096 /sys/block/vdc/queue/logical_block_size"),
    ] {
        let (text, code) = shell.run(command).await.expect(what);
        if code != 0 {
            missing.push(format!("{what}: {text}"));
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

async fn seed(shell: &mut Shell, key: &str) {
    shell.ok("mkdir -p /tmp/seed && mount -o ro /dev/vdb /tmp/seed").await;
    let meta: Value =
        serde_json::from_str(&shell.ok("cat /tmp/seed/openstack/latest/meta_data.json").await).expect("JSON");
    // The agent gives root its own keys later, and only those, as with KubeVirt.
    assert_eq!(meta["public_keys"], json!({"0": key}), "{meta}");
    assert_eq!(meta["devices"], json!([{"type": "disk", "serial": "extra-1", "tags": ["logs"]}]), "{meta}");
}

async fn readiness(client: &Client, shell: &mut Shell) {
    let is_ready = |instance: &Value| is_true(instance, "Ready");
    let instance = client.get(&format!("{INSTANCES}/dev")).await.expect("an answer").json();
    assert!(!is_ready(&instance), "{}", instance["status"]);
    shell.ok("touch /var/www/ready").await;
    instance_becomes(client, "dev", "ready", is_ready).await;
    becomes(client, &format!("{MACHINES}/dev"), "ready", BOOT, |machine| machine["status"]["ready"] == true).await;
    shell.ok("rm /var/www/ready").await;
    let instance = instance_becomes(client, "dev", "unready", |instance| !is_ready(instance)).await;
    assert_eq!(instance["status"]["phase"], "Running");
    shell.ok("touch /var/www/ready").await;
}

/// Keys and a password by the agent, and their change while the guest runs.
async fn credentials(server: &Croft, client: &Client, shell: &mut Shell, (file, key): (&str, &str)) {
    // One of the secrets is not there yet, and nothing is given before all is known.
    let unknown = |instance: &Value| {
        let found = condition(instance, "AccessCredentialsSynchronized").cloned().unwrap_or_default();
        found["status"] == "False" && found["message"].as_str().unwrap_or_default().contains("passwords")
    };
    instance_becomes(client, "dev", "in want of a secret", unknown).await;
    secret(client, "passwords", &json!({"root": "parsnip-8"})).await;
    let synchronized = |instance: &Value| is_true(instance, "AccessCredentialsSynchronized");
    let instance = instance_becomes(client, "dev", "given its keys", synchronized).await;
    assert!(is_true(&instance, "AgentConnected") && condition(&instance, "AgentVersionNotSupported").is_none());
    in_guest(shell, "cat ~/.ssh/authorized_keys", |text| text.contains(key)).await;
    let options =
        ["-i", file, "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"];
    let mut args = vec!["vm", "ssh", "root@dev", "--"];
    args.extend(options);
    args.push("cat /etc/hostname");
    let said = eventually_within(BOOT, async || croft_ok(server, &args).await.map_err(|err| format!("{err:#}")));
    assert_eq!(said.await.expect("ssh with the key").trim(), "dev");
    let users = client.get(&subresource("virtualmachineinstances", "dev", "userlist")).await.expect("an answer");
    let users = users.ok().expect("users");
    assert!(users["items"].is_array(), "{users}");

    // The password is needed from now on, and another after its change.
    shell.log_in_again("parsnip-8").await.expect("the password is set");
    let before = shell.ok("grep ^root: /etc/shadow").await;
    change_secret(client, "passwords", &json!({"root": "swede-9"})).await;
    change_secret(client, "agent-key", &json!({"key": OTHER_KEY})).await;
    in_guest(shell, "grep ^root: /etc/shadow", |text| text != before).await;
    shell.log_in_again("swede-9").await.expect("the password is changed");
    in_guest(shell, "cat ~/.ssh/authorized_keys", |text| text.contains("next") && !text.contains(key)).await;
}

/// A second interface comes, and goes again.
async fn interfaces(client: &Client, shell: &mut Shell) {
    let bridge = Bridge::new();
    let config = json!({"cniVersion": "0.3.1", "name": "lan", "type": "bridge", "bridge": bridge.0});
    let network = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "lan"}, "spec": {"config": config.to_string()}});
    client.post(NETWORKS, &network).await.expect("an answer").ok().expect("a network");
    let first = client.get(&format!("{MACHINES}/dev")).await.expect("an answer").json();
    let first = first["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0].clone();
    let networks = json!([{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "lan"}}]);
    let with = |second: &Value| json!({"networks": networks, "domain": {"devices": {"interfaces": [first, second]}}});
    let mut second = json!({"name": "lan", "bridge": {}, "macAddress": "02:00:00:00:00:42"});
    patch_machine(client, "dev", &with(&second)).await;
    in_guest(shell, "cat /sys/class/net/*/address", |text| text.contains("02:00:00:00:00:42")).await;
    let shown = |instance: &Value| {
        let interfaces = instance["status"]["interfaces"].as_array().cloned().unwrap_or_default();
        interfaces.iter().any(|one| one["name"] == "lan" && one["mac"] == "02:00:00:00:00:42")
    };
    instance_becomes(client, "dev", "with the interface", shown).await;
    second["state"] = json!("down");
    patch_machine(client, "dev", &with(&second)).await;
    let carrier =
        "for d in /sys/class/net/*; do grep -q :42 $d/address && ip link set dev ${d##*/} up && cat $d/carrier; done";
    in_guest(shell, carrier, |text| text == "0").await;
    second["state"] = json!("absent");
    patch_machine(client, "dev", &with(&second)).await;
    in_guest(shell, "cat /sys/class/net/*/address", |text| !text.contains("02:00:00:00:00:42")).await;
    instance_becomes(client, "dev", "without the interface", |instance| !shown(instance)).await;
    let machine = client.get(&format!("{MACHINES}/dev")).await.expect("an answer").json();
    assert!(!is_true(&machine, "RestartRequired"), "{}", machine["status"]);
}

/// The guest reboots itself, in the same instance.
async fn reboot(client: &Client, shell: &mut Shell) {
    let before = client.get(&format!("{INSTANCES}/dev")).await.expect("an answer").json();
    let boot = shell.ok("cat /proc/sys/kernel/random/boot_id").await;
    let answer = client.put(&subresource("virtualmachineinstances", "dev", "softreboot"), &json!({})).await;
    assert_eq!(answer.expect("an answer").status, 200);
    shell.authenticate(Some("swede-9")).await.expect("a shell");
    assert_ne!(shell.ok("cat /proc/sys/kernel/random/boot_id").await, boot);
    let after = client.get(&format!("{INSTANCES}/dev")).await.expect("an answer").json();
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["status"]["phase"], "Running");
}

/// Firmware with Secure Boot would hang over a new processor while processors are emulated: that waits for a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secure_guest_gets_processors_live_or_by_a_restart() {
    let (server, client) = node_with_image().await;
    let mut machine = guest("secure");
    let secure = json!({
        "domain": {
            "cpu": {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 2}, "memory": {"guest": "512Mi"},
            "firmware": {"bootloader": {"efi": {"secureBoot": true}}}, "features": {"smm": {"enabled": true}},
        },
        "readinessProbe": {"exec": {"command": ["/bin/test", "-e", "/srv/ready"]}, "periodSeconds": 1,
            "timeoutSeconds": 10, "failureThreshold": 1},
    });
    merge(&mut machine["spec"]["template"]["spec"], &secure);
    create(&client, &machine).await;
    let mut shell = Shell::log_in(&server, "secure", Some("turnip-7")).await.expect("a shell");
    let instance = client.get(&format!("{INSTANCES}/secure")).await.expect("an answer").json();
    assert!(!is_true(&instance, "Ready"), "{}", instance["status"]);
    shell.ok("touch /srv/ready").await;
    instance_becomes(&client, "secure", "ready", |instance| is_true(instance, "Ready")).await;

    patch_machine(&client, "secure", &json!({"domain": {"cpu": {"sockets": 2}}})).await;
    let fixed = condition(&instance, "HotVCPUChange").is_some_and(|found| found["status"] == "False");
    if !fixed {
        in_guest(&mut shell, "nproc", |text| text == "2").await;
        return;
    }
    let is_so = |machine: &Value| is_true(machine, "RestartRequired");
    let waiting = becomes(&client, &format!("{MACHINES}/secure"), "in need of a restart", BOOT, is_so).await;
    let why = condition(&waiting, "RestartRequired").cloned().unwrap_or_default();
    assert!(why["message"].as_str().unwrap_or_default().contains("Secure Boot"), "{why}");
    // It lives.
    assert_eq!(shell.ok("nproc").await, "1");
    let instance = client.get(&format!("{INSTANCES}/secure")).await.expect("an answer").json();
    assert_eq!(instance["spec"]["domain"]["cpu"]["sockets"], 1, "the instance is as it runs");
}

//! What a machine has besides its disks: the firmware's variables and the TPM, in snapshots, backups, restores and clones.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use croft_e2e::machines::{
    BOOT, CLAIMS, INSTANCES, MACHINES, Shell, becomes, create, empty, guest, is_gone, is_true, node, node_with_image,
    running, status_becomes,
};
use croft_e2e::storage::{SECRETS, claim, deleted, made, patched};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};

const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
const SNAPSHOTS: &str = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots";
const MACHINE_RESTORES: &str = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores";
const CLONES: &str = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones";

/// Where the firmware's variables are free, in the part that it copies them to and fro.
const FREE: u64 = 500_000;

fn target(name: &str) -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name})
}

fn backup(name: &str, ty: &str, machine: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": name},
        "spec": {"type": ty, "source": target(machine)}})
}

fn restore(name: &str, backup: &str, machine: &str, is_new: bool) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": {"name": name},
        "spec": {"virtualMachineBackupName": backup, "virtualMachineBackupNamespace": "default", "newVM": is_new,
            "haltAfterRestore": true, "target": target(machine)}})
}

async fn ready(client: &Client, name: &str) -> Value {
    becomes(client, &format!("{BACKUPS}/{name}"), "ready", BOOT, |it| it["status"]["readyToUse"] == true).await
}

async fn complete(client: &Client, path: &str) {
    becomes(client, path, "complete", BOOT, |it| it["status"]["complete"] == true).await;
}

/// A machine with firmware and TPM that stands still before its first instruction: the test plays the guest.
fn machine(name: &str) -> Value {
    let mut machine = empty(name);
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["startStrategy"] = json!("Paused");
    spec["domain"]["firmware"] = json!({"bootloader": {"efi": {"secureBoot": false, "persistent": true}}});
    spec["domain"]["devices"]["tpm"] = json!({"persistent": true});
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": format!("{name}-disk")}}]);
    machine
}

async fn started(client: &Client, name: &str) {
    patched(client, &format!("{MACHINES}/{name}"), &json!({"spec": {"runStrategy": "Always"}})).await;
    status_becomes(client, name, "Paused").await;
}

async fn stopped(client: &Client, name: &str) {
    patched(client, &format!("{MACHINES}/{name}"), &json!({"spec": {"runStrategy": "Halted"}})).await;
    let is_stopped = |it: &Value| it["status"]["printableStatus"] == "Stopped" && it["status"]["created"] != true;
    becomes(client, &format!("{MACHINES}/{name}"), "stopped", BOOT, is_stopped).await;
    is_gone(client, &format!("{INSTANCES}/{name}")).await;
}

async fn state(server: &Croft, client: &Client, name: &str) -> PathBuf {
    let machine = client.get(&format!("{MACHINES}/{name}")).await.expect("an answer").json();
    server.data_dir().join("pool/state").join(machine["metadata"]["uid"].as_str().expect("a uid"))
}

fn set(state: &Path, word: &str) {
    let file = std::fs::OpenOptions::new().write(true).open(state.join("nvram.fd")).expect("the variables");
    file.write_all_at(word.as_bytes(), FREE).expect("written");
}

fn word(state: &Path) -> String {
    let file = std::fs::File::open(state.join("nvram.fd")).expect("the variables");
    let mut word = [0; 3];
    file.read_exact_at(&mut word, FREE).expect("a word");
    String::from_utf8_lossy(&word).into_owned()
}

/// The first of the TPM's seeds, which tells it from all others; the rest of its state changes whenever it starts.
fn tpm(state: &Path) -> Vec<u8> {
    const PERSISTENT: [u8; 4] = [0x12, 0x21, 0x34, 0x43];
    let all = std::fs::read(state.join("tpm/tpm2-00.permall")).expect("the TPM's state");
    let data = all.windows(4).position(|window| window == PERSISTENT).expect("persistent data");
    let seed = all[data..].windows(2).position(|window| window == [0, 64]).expect("a seed");
    all[data + seed + 2..data + seed + 66].to_vec()
}

/// The Secrets that hold states.
async fn states(client: &Client) -> Vec<String> {
    let all = client.get(SECRETS).await.expect("an answer").json();
    let names = all["items"].as_array().into_iter().flatten().filter_map(|it| it["metadata"]["name"].as_str());
    names.filter(|name| name.starts_with("machine-state-")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_and_tpm_go_with_the_disks() {
    let (server, client) = node().await;
    made(&client, CLAIMS, &claim("vm-disk", "harvester-longhorn", "24Mi")).await;
    create(&client, &machine("vm")).await;
    status_becomes(&client, "vm", "Paused").await;
    let vm = state(&server, &client, "vm").await;
    set(&vm, "one");
    let seeds = tpm(&vm);

    // In Harvester's words, and in KubeVirt's.
    made(&client, BACKUPS, &backup("first", "snapshot", "vm")).await;
    ready(&client, "first").await;
    let snapshot = |name: &str, of: &str| {
        json!({"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
            "metadata": {"name": name}, "spec": {"source": target(of)}})
    };
    made(&client, SNAPSHOTS, &snapshot("second", "vm")).await;
    let taken = async |name: &str| {
        let path = format!("{SNAPSHOTS}/{name}");
        becomes(&client, &path, "taken", BOOT, |it| it["status"]["phase"] == "Succeeded").await
    };
    let second = taken("second").await;
    let included = json!(["disk", "persistent-state-for-vm"]);
    assert_eq!(second["status"]["snapshotVolumes"]["includedVolumes"], included, "{second}");
    assert_eq!(states(&client).await.len(), 2);

    // Back to what it was; what is kept of it before its next start is that already.
    set(&vm, "two");
    stopped(&client, "vm").await;
    std::fs::write(vm.join("tpm/tpm2-00.permall"), "forgotten").expect("written");
    made(&client, RESTORES, &restore("back", "first", "vm", false)).await;
    complete(&client, &format!("{RESTORES}/back")).await;
    made(&client, SNAPSHOTS, &snapshot("idle", "vm")).await;
    taken("idle").await;
    deleted(&client, &format!("{BACKUPS}/first")).await;
    is_gone(&client, &format!("{BACKUPS}/first")).await;
    started(&client, "vm").await;
    assert_eq!((word(&vm), tpm(&vm)), ("one".to_owned(), seeds.clone()));
    // It is done once.
    set(&vm, "two");
    stopped(&client, "vm").await;
    started(&client, "vm").await;
    assert_eq!(word(&vm), "two");

    // Others are made of it: of what was kept, and of the machine as it is, with Harvester's clone and KubeVirt's.
    for (name, from) in [("later", "idle"), ("copy", "second")] {
        let restore = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": name}, "spec": {"target": target(name), "virtualMachineSnapshotName": from}});
        made(&client, MACHINE_RESTORES, &restore).await;
        complete(&client, &format!("{MACHINE_RESTORES}/{name}")).await;
    }
    let act = "/v1/harvester/kubevirt.io.virtualmachines/default/vm?action=clone";
    let answer = client.post(act, &json!({"targetVm": "twin", "runStrategy": "Halted"})).await.expect("an answer");
    assert_eq!(answer.status, 204, "{}", answer.text());
    let clone = json!({"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": {"name": "c"},
        "spec": {"source": target("vm"), "target": target("other")}});
    made(&client, CLONES, &clone).await;
    becomes(&client, &format!("{CLONES}/c"), "made", BOOT, |it| it["status"]["phase"] == "Succeeded").await;
    for (name, expected) in [("later", "one"), ("copy", "one"), ("twin", "two"), ("other", "two")] {
        started(&client, name).await;
        let its = state(&server, &client, name).await;
        assert_eq!((word(&its).as_str(), tpm(&its)), (expected, seeds.clone()), "{name}");
        set(&its, "own");
        assert_eq!(word(&vm), "two", "{name} has its own");
    }

    // What nobody needs any more goes.
    for name in ["vm", "later", "copy", "twin", "other"] {
        deleted(&client, &format!("{MACHINES}/{name}")).await;
    }
    for name in ["second", "idle"] {
        deleted(&client, &format!("{SNAPSHOTS}/{name}")).await;
    }
    eventually("no state is left", async || {
        let left = states(&client).await;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_and_tpm_go_to_the_backup_target_and_come_back_anywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let value = json!({"type": "directory", "endpoint": format!("file://{}", dir.path().display()),
        "refreshIntervalInSeconds": 1});
    let seeds = {
        let (server, client) = node().await;
        patched(&client, SETTING, &json!({"value": value.to_string()})).await;
        becomes(&client, SETTING, "usable", BOOT, |setting| is_true(setting, "configured")).await;
        // What cannot be kept whole is not kept in part.
        let mut bare = machine("bare");
        bare["spec"]["template"]["spec"]["volumes"] = json!([]);
        bare["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = json!([]);
        create(&client, &bare).await;
        made(&client, BACKUPS, &backup("bare", "snapshot", "bare")).await;
        let says = |it: &Value| it["status"]["error"]["message"].as_str().is_some_and(|why| why.contains("TPM"));
        becomes(&client, &format!("{BACKUPS}/bare"), "refused", BOOT, says).await;

        made(&client, CLAIMS, &claim("vm-disk", "harvester-longhorn", "24Mi")).await;
        create(&client, &machine("vm")).await;
        status_becomes(&client, "vm", "Paused").await;
        let vm = state(&server, &client, "vm").await;
        set(&vm, "one");
        made(&client, BACKUPS, &backup("far", "backup", "vm")).await;
        let is_there = |it: &Value| it["status"]["readyToUse"] == true && is_true(it, "MetadataReady");
        becomes(&client, &format!("{BACKUPS}/far"), "in the target", BOOT, is_there).await;
        tpm(&vm)
    };
    let (server, client) = node().await;
    patched(&client, SETTING, &json!({"value": value.to_string()})).await;
    ready(&client, "far").await;
    made(&client, RESTORES, &restore("here", "far", "again", true)).await;
    complete(&client, &format!("{RESTORES}/here")).await;
    started(&client, "again").await;
    let again = state(&server, &client, "again").await;
    assert_eq!((word(&again), tpm(&again)), ("one".to_owned(), seeds));
    let secrets = client.get(SECRETS).await.expect("an answer").text();
    assert!(!secrets.contains("again-machine-state"), "it is no Secret of the guest's: {secrets}");
}

/// Commands of a TPM 2.0 for eight bytes that it keeps, in its own language.
mod nv {
    /// By the owner, whose password is empty.
    const OWNER: &str = "40000001";
    const PASSWORD: &str = "0000000940000009000000 0000";
    const INDEX: &str = "01500000";

    fn command(code: &str, handles: &str, parameters: &str) -> String {
        let body = format!("{code}{handles}{PASSWORD}{parameters}").replace(' ', "");
        let whole = format!("8002{:08x}{body}", body.len() / 2 + 6);
        let bytes: Vec<&str> = (0..whole.len()).step_by(2).map(|at| &whole[at..at + 2]).collect();
        format!("\\x{}", bytes.join("\\x"))
    }

    pub(super) fn define() -> String {
        command("0000012a", OWNER, &format!("0000 000e {INDEX} 000b 02060006 0000 0008"))
    }

    pub(super) fn write(word: &str) -> String {
        let hex = super::hex(word.as_bytes());
        command("00000137", &format!("{OWNER}{INDEX}"), &format!("0008{hex}0000"))
    }

    pub(super) fn read() -> String {
        command("0000014e", &format!("{OWNER}{INDEX}"), "00080000")
    }
}

/// What the TPM answers to a command.
async fn ask_tpm(shell: &mut Shell, command: &str) -> String {
    shell.ok(&format!("exec 3<>/dev/tpm0; printf '{command}' >&3; dd bs=4096 count=1 <&3 2>/dev/null | od -An -v -t x1 | tr -d ' \\n'; exec 3>&-")).await
}

/// Has the guest make a variable of this name, and its TPM keep it: a word of eight letters.
async fn remember(shell: &mut Shell, word: &str) {
    let variable = format!("/sys/firmware/efi/efivars/{word}-12345678-1234-1234-1234-123456789abc");
    shell.ok(&format!("printf '\\007\\000\\000\\000x' > {variable}")).await;
    let answer = ask_tpm(shell, &nv::write(word)).await;
    assert!(answer.starts_with("80020000001300000000"), "{answer}");
    let (answer, hex) = (ask_tpm(shell, &nv::read()).await, hex(word.as_bytes()));
    assert!(answer.contains(&format!("0008{hex}")), "{answer}");
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

/// Whether a machine has a variable of this name, and whether its TPM has it.
fn has(state: &Path, word: &str) -> (bool, bool) {
    let holds = |name: &str, bytes: &[u8]| {
        let content = std::fs::read(state.join(name)).expect("the state");
        content.windows(bytes.len()).any(|window| window == bytes)
    };
    let wide: Vec<u8> = word.encode_utf16().flat_map(u16::to_le_bytes).collect();
    (holds("nvram.fd", &wide), holds("tpm/tpm2-00.permall", word.as_bytes()))
}

/// A guest that runs writes both, and has them again as they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_guest_wrote_is_there_again() {
    let (server, client) = node_with_image().await;
    let mut machine = guest("web");
    machine["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    let domain = &mut machine["spec"]["template"]["spec"]["domain"];
    domain["firmware"] = json!({"bootloader": {"efi": {"secureBoot": false, "persistent": true}}});
    domain["devices"]["tpm"] = json!({"persistent": true});
    domain["memory"] = json!({"guest": "448Mi"});
    create(&client, &machine).await;
    let mut shell = Shell::log_in(&server, "web", Some("turnip-7")).await.expect("a shell");
    let answer = ask_tpm(&mut shell, &nv::define()).await;
    assert!(answer.starts_with("80020000001300000000"), "{answer}");
    remember(&mut shell, "rutabaga").await;
    made(&client, BACKUPS, &backup("first", "snapshot", "web")).await;
    ready(&client, "first").await;
    remember(&mut shell, "kohlrabi").await;

    stopped(&client, "web").await;
    let state = state(&server, &client, "web").await;
    assert_eq!((has(&state, "rutabaga"), has(&state, "kohlrabi")), ((true, false), (true, true)));
    made(&client, RESTORES, &restore("back", "first", "web", false)).await;
    complete(&client, &format!("{RESTORES}/back")).await;
    patched(&client, &format!("{MACHINES}/web"), &json!({"spec": {"runStrategy": "Always"}})).await;
    running(&client, "web").await;
    assert_eq!((has(&state, "rutabaga"), has(&state, "kohlrabi")), ((true, true), (false, false)));
}

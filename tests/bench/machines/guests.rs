//! The small guest under Croft and under QEMU started by hand: when it first speaks, and how fast its disk is.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use croft_e2e::machines::{BOOT, CLAIMS, INSTANCES, MACHINES, Shell, Terminal, croft_ok, guest_image, qemus};
use croft_testkit::{Client, Croft, Protocol, StoreKind, eventually_within};
use serde_json::{Value, json};

use super::{bare, delete, node_is_ready};
use crate::Size;
use crate::report::{Report, Row, median, ratio, seconds};

/// How long each kind of request is made, and how often it is Croft's turn.
const DISK_SECONDS: u64 = 2;
const DISK_ROUNDS: usize = 5;
const DISK_SIZE: &str = "512Mi";
const DISK_BYTES: u64 = 512 << 20;

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start_node(StoreKind::Embedded, &[]).await?;
    let client = croft.client_over(Protocol::Http1)?;
    node_is_ready(&client).await?;
    let image = guest_image()?;
    croft_ok(&croft, &["image", "upload", "tiny", image.to_str().context("a path")?]).await?;
    first_line(size, &croft, &client, &image, report).await?;
    disks(size, &croft, &client, &image, report).await
}

/// The small guest with its root disk, and more disks for it to use.
pub(super) fn guest(name: &str, memory: &str, more: &[&str]) -> Value {
    let root = format!("{name}-root");
    let claims = json!([{
        "metadata": {"name": root, "annotations": {"harvesterhci.io/imageId": "default/tiny"}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "longhorn-tiny",
                 "resources": {"requests": {"storage": "256Mi"}}},
    }]);
    let names: Vec<&str> = std::iter::once(root.as_str()).chain(more.iter().copied()).collect();
    let disks: Vec<Value> = names.iter().map(|name| json!({"name": name, "disk": {"bus": "virtio"}})).collect();
    let volumes: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "annotations": {
            "harvesterhci.io/volumeClaimTemplates": claims.to_string(),
            "harvesterhci.io/removedPersistentVolumeClaims": root,
        }},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "cpu": {"cores": 1}, "memory": {"guest": memory},
                "devices": {"disks": disks, "interfaces": [{"name": "default", "masquerade": {}}]},
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": volumes,
        }}},
    })
}

/// From the acknowledged creation to the first line on the serial console, in turns with QEMU alone.
async fn first_line(size: Size, croft: &Croft, client: &Client, image: &Path, report: &mut Report) -> Result<()> {
    let (mut ours, mut alone) = (Vec::new(), Vec::new());
    for n in 0..size.of_at_least(5, 2) {
        let name = format!("boot-{n}");
        client.post(MACHINES, &guest(&name, "192Mi", &[])).await?.ok()?;
        let start = Instant::now();
        let log = console_log(croft, client, &name).await?;
        first_line_of(&log).await?;
        ours.push(start.elapsed());
        let args = command_line(croft)?;
        delete(client, &name).await?;

        let dir = tempfile::tempdir_in(croft.data_dir())?;
        let disk = bare::copy_of(image, dir.path()).await?;
        let log = dir.path().join("console.log");
        let args = bare::typed(&args, &[&disk], &format!("file,path={}", log.display()), dir.path());
        let start = Instant::now();
        let _guest = bare::start(&args)?;
        first_line_of(&log).await?;
        alone.push(start.elapsed());
    }
    let (ours, alone) = (median(&mut ours), median(&mut alone));
    report.row(&Row {
        what: "the small guest, created to its first serial line (p50)",
        croft: seconds(ours),
        rival: format!("{} (QEMU alone, exec to the line)", seconds(alone)),
        ratio: Some(ratio(alone, ours)),
        goal: "1.10 x QEMU's time".into(),
        met: ours.as_secs_f64() <= alone.as_secs_f64() * 1.10,
    });
    Ok(())
}

/// How Croft has started the one guest that runs.
fn command_line(croft: &Croft) -> Result<Vec<String>> {
    let pid = qemus(croft).into_values().next().context("no guest runs")?;
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    Ok(line.split_terminator('\0').map(str::to_owned).collect())
}

/// Where the agent keeps what the guest says.
pub(super) async fn console_log(croft: &Croft, client: &Client, name: &str) -> Result<std::path::PathBuf> {
    let uid = eventually_within(BOOT, async || {
        let instance = client.get(&format!("{INSTANCES}/{name}")).await?.ok()?;
        instance["metadata"]["uid"].as_str().map(str::to_owned).context("no uid")
    });
    let run_dir = croft.run_dir().context("it is a node")?;
    Ok(run_dir.join("vms").join(uid.await?).join("console.log"))
}

pub(super) async fn first_line_of(log: &Path) -> Result<()> {
    let deadline = Instant::now() + BOOT;
    while Instant::now() < deadline {
        if std::fs::read(log).is_ok_and(|said| said.contains(&b'\n')) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("{} stays empty", log.display())
}

/// The same requests through the disks of three guests, in turns: figures of one moment are compared with each other.
async fn disks(size: Size, croft: &Croft, client: &Client, image: &Path, report: &mut Report) -> Result<()> {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "speed"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": DISK_SIZE}}}});
    client.post(CLAIMS, &claim).await?.ok()?;
    client.post(MACHINES, &guest("disks", "192Mi", &["speed"])).await?.ok()?;
    let mut ours = Shell::log_in(croft, "disks", None).await?;
    let args = command_line(croft)?;
    // The same file system as Croft's, and the one below it where that is in a loop file.
    let mut alone = ByHand::start(&args, image, &croft.data_dir().join("pool/tmp")).await?;
    let mut below = ByHand::start(&args, image, croft.data_dir()).await?;

    let (mut of_ours, mut of_alone, mut of_below) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.of_at_least(DISK_ROUNDS, 3) {
        of_ours.push(rates(&mut ours).await?);
        of_alone.push(rates(&mut alone.shell).await?);
        of_below.push(rates(&mut below.shell).await?);
    }
    for (index, (what, unit)) in [
        ("1 MiB sequential writes", "MiB/s"),
        ("1 MiB sequential reads", "MiB/s"),
        ("4 KiB random writes", "/s"),
        ("4 KiB random reads", "/s"),
    ]
    .into_iter()
    .enumerate()
    {
        let middle = |rounds: &[[f64; 4]]| {
            let mut rates: Vec<f64> = rounds.iter().map(|round| round[index]).collect();
            rates.sort_unstable_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let (ours, alone, below) = (middle(&of_ours), middle(&of_alone), middle(&of_below));
        report.row(&Row {
            what: &format!("a guest's disk: {what}"),
            croft: format!("{ours:.0} {unit}"),
            rival: format!("{alone:.0} {unit} (QEMU on a plain file there; {below:.0} below the pool's loop file)"),
            ratio: Some(ours / alone),
            goal: "0.95 x QEMU".into(),
            met: ours >= alone * 0.95,
        });
    }
    delete(client, "disks").await
}

/// The guest that Croft runs, started by hand with a plain file as its second disk.
struct ByHand {
    shell: Shell<bare::Line>,
    _process: tokio::process::Child,
    _dir: tempfile::TempDir,
}

impl ByHand {
    async fn start(args: &[String], image: &Path, below: &Path) -> Result<Self> {
        let dir = tempfile::tempdir_in(below)?;
        let (root, plain) = (bare::copy_of(image, dir.path()).await?, dir.path().join("plain.raw"));
        std::fs::File::create(&plain)?.set_len(DISK_BYTES)?;
        let socket = dir.path().join("console");
        let serial = format!("socket,path={},server=on,wait=off", socket.display());
        let args = bare::typed(args, &[&root, &plain], &serial, dir.path());
        // QEMU's own way of driving a file is by threads.
        let args: Vec<String> = args.iter().map(|arg| arg.replace("\"io_uring\"", "\"threads\"")).collect();
        let process = bare::start(&args)?;
        let shell = Shell::on(bare::Line::connect(&socket).await?, None).await?;
        Ok(Self { shell, _process: process, _dir: dir })
    }
}

/// In the order in which `disk-speed` prints them.
async fn rates<T: Terminal>(shell: &mut Shell<T>) -> Result<[f64; 4]> {
    let (said, code) = shell.run(&format!("disk-speed /dev/vdb {DISK_SECONDS}")).await?;
    if code != 0 {
        bail!("disk-speed: {said}");
    }
    let rates: Vec<f64> = said.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    rates.try_into().map_err(|_| anyhow::anyhow!("disk-speed says {said}"))
}

//! Harvester's HTTP API: a list beside the same list of the Kubernetes API, and an upload beside one to nginx.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use croft_e2e::machines::{BOOT, IMAGES, MACHINES, is_true};
use croft_testkit::{Call, Client, Croft, Protocol, StoreKind, promptly_within};
use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::Size;
use crate::load::{self, Writer};
use crate::machines::node_is_ready;
use crate::nginx::Nginx;
use crate::report::{Report, Row, median, ms};

const PLAIN: &str = "/apis/kubevirt.io/v1/virtualmachines";
const DRESSED: &str = "/v1/harvester/kubevirt.io.virtualmachines";
/// How many make machines at a time.
pub(crate) const CREATORS: usize = 8;
const FULL_MIB: usize = 1024;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    list(size, report).await?;
    upload(size, report).await
}

/// Creates machines as Harvester's clients write them, which do not run.
#[derive(Debug, Clone)]
struct Machines(Client);

impl Writer for Machines {
    async fn write(&self, name: &str, _: usize) -> Result<()> {
        let body = Bytes::from(machine(name).to_string());
        let answer = self.0.send(Call::new(Method::POST, MACHINES).body("application/json", body)).await?;
        ensure!(answer.status == 201, "{}: {}", answer.status, answer.text());
        Ok(())
    }
}

pub(crate) fn machine(name: &str) -> Value {
    let claims = json!([{"metadata": {"name": format!("{name}-disk-0"), "annotations": {"harvesterhci.io/imageId": "default/none"}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "resources": {"requests": {"storage": "10Gi"}}}}]);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "name": name, "labels": {"harvesterhci.io/creator": "harvester", "harvesterhci.io/os": "linux"},
            "annotations": {"harvesterhci.io/volumeClaimTemplates": claims.to_string(), "network.harvesterhci.io/ips": "[]"},
        },
        "spec": {"runStrategy": "Halted", "template": {
            "metadata": {"labels": {"harvesterhci.io/vmName": name}, "annotations": {"harvesterhci.io/sshNames": "[]"}},
            "spec": {
                "evictionStrategy": "LiveMigrateIfPossible", "hostname": name,
                "domain": {
                    "cpu": {"cores": 2, "sockets": 1, "threads": 1},
                    "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
                    "devices": {
                        "disks": [{"name": "disk-0", "bootOrder": 1, "disk": {"bus": "virtio"}}, {"name": "cloudinitdisk", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "model": "virtio", "masquerade": {}}],
                        "inputs": [{"bus": "usb", "name": "tablet", "type": "tablet"}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "disk-0", "persistentVolumeClaim": {"claimName": format!("{name}-disk-0")}},
                    {"name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": format!("{name}-init")}}},
                ],
            },
        }},
    })
}

async fn list(size: Size, report: &mut Report) -> Result<()> {
    let count = size.of(10_000);
    let croft = Croft::start(StoreKind::Embedded).await?;
    let writers =
        (0..CREATORS).map(|_| croft.client_over(Protocol::Http2).map(Machines)).collect::<Result<Vec<_>>>()?;
    load::together(&writers, "vm", 0..count, 0).await?;
    let client = croft.client_over(Protocol::Http2)?;
    have_status(&client, count).await?;
    let plain_bytes = client.get(PLAIN).await?.body.len();
    let dressed = client.get(DRESSED).await?.body;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        ours.extend(load::gets(&client, DRESSED, 1).await?);
        plain.extend(load::gets(&client, PLAIN, 1).await?);
    }
    let (ours, plain) = (median(&mut ours), median(&mut plain));
    let (rate, plain_rate) =
        (megabytes(dressed.len()) / ours.as_secs_f64(), megabytes(plain_bytes) / plain.as_secs_f64());
    report.row(&Row {
        what: &format!("/v1/harvester list of {count} VMs, bytes per second"),
        croft: format!("{rate:.0} MB/s ({})", ms(ours)),
        rival: format!("{plain_rate:.0} MB/s ({}; the Kubernetes list)", ms(plain)),
        ratio: Some(rate / plain_rate),
        goal: "0.3 x".into(),
        met: rate >= plain_rate * 0.3,
    });
    Ok(())
}

/// Controllers have their say about each machine first.
pub(crate) async fn have_status(client: &Client, count: usize) -> Result<()> {
    promptly_within(BOOT, async || {
        let list = client.get(PLAIN).await?.ok()?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let told = items.iter().filter(|machine| machine["status"]["printableStatus"].is_string()).count();
        if told == count { Ok(()) } else { bail!("{told} of {count} machines have a status") }
    })
    .await
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// The same file by the same curl, over TLS, to a disk that has it when the command is over.
async fn upload(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start_node(StoreKind::Embedded, &[]).await?;
    let client = croft.client_over(Protocol::Http1)?;
    node_is_ready(&client).await?;
    let scratch = tempfile::tempdir_in(croft.data_dir())?;
    let mib = size.of(FULL_MIB);
    let file = scratch.path().join("disk.raw");
    std::fs::write(&file, crate::machines::noise(mib))?;
    for (name, content) in [("crt", &croft.admin.cert_pem), ("key", &croft.admin.key_pem)] {
        std::fs::write(scratch.path().join(name), content)?;
    }
    let nginx = Nginx::start_in(scratch.path(), b"x").await?;

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for n in 0..size.of_at_least(5, 3) {
        let name = format!("upload-{n}");
        ours.push(to_croft(&croft, &client, &name, &file, scratch.path()).await?);
        theirs.push(to_nginx(&nginx, &file).await?);
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let rate = |time: Duration| format!("{} ({:.0} MB/s)", ms(time), megabytes(mib << 20) / time.as_secs_f64());
    report.row(&Row {
        what: &format!("upload of a raw image of {mib} MiB, imported and durable"),
        croft: rate(ours),
        rival: format!("{} (curl -T to nginx, and fsync)", rate(theirs)),
        ratio: Some(theirs.as_secs_f64() / ours.as_secs_f64()),
        goal: "0.8 x nginx".into(),
        met: theirs.as_secs_f64() >= ours.as_secs_f64() * 0.8,
    });
    Ok(())
}

async fn to_croft(croft: &Croft, client: &Client, name: &str, file: &Path, scratch: &Path) -> Result<Duration> {
    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": name},
        "spec": {"displayName": name, "sourceType": "upload"}});
    client.post(IMAGES, &image).await?.ok()?;
    let path = format!("{IMAGES}/{name}");
    promptly_within(BOOT, async || {
        let image = client.get(&path).await?.ok()?;
        if is_true(&image, "Initialized") { Ok(()) } else { bail!("not initialized") }
    })
    .await?;
    let size = std::fs::metadata(file)?.len();
    let url = format!(
        "{}/v1/harvester/harvesterhci.io.virtualmachineimages/default/{name}?action=upload&size={size}",
        croft.url
    );
    let start = Instant::now();
    let mut curl = Command::new("curl");
    curl.args(["-fsSk", "--http1.1", "-X", "POST", "-H", "Expect:", "-T"]).arg(file);
    curl.arg("--cert").arg(scratch.join("crt")).arg("--key").arg(scratch.join("key")).arg(url);
    run(&mut curl).await?;
    let took = start.elapsed();
    let image = client.get(&path).await?.ok()?;
    ensure!(is_true(&image, "Imported"), "not imported: {}", image["status"]);
    client.delete(&path).await?.ok()?;
    Ok(took)
}

async fn to_nginx(nginx: &Nginx, file: &Path) -> Result<Duration> {
    let start = Instant::now();
    run(Command::new("curl").args(["-fsSk", "--http1.1", "-H", "Expect:", "-T"]).arg(file).arg(nginx.put_url()))
        .await?;
    let put = nginx.put_file();
    std::fs::File::open(&put)?.sync_all()?;
    let took = start.elapsed();
    std::fs::remove_file(put)?;
    Ok(took)
}

async fn run(command: &mut Command) -> Result<()> {
    let output = command.output().await?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

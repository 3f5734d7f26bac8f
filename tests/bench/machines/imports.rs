//! An image from a URL to a disk that can be cloned, beside curl and qemu-img.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use croft_e2e::machines::{BOOT, IMAGES, is_true};
use croft_testkit::{Croft, Protocol, StoreKind, promptly_within};
use serde_json::json;
use tokio::process::Command;

use super::node_is_ready;
use crate::Size;
use crate::nginx::Nginx;
use crate::report::{Report, Row, median, ms, ratio};

const FULL_MIB: usize = 512;

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start_node(StoreKind::Embedded, &[]).await?;
    let client = croft.client_over(Protocol::Http1)?;
    node_is_ready(&client).await?;
    let scratch = tempfile::tempdir_in(croft.data_dir())?;
    let mib = size.of(FULL_MIB);
    let nginx = Nginx::start(&image(mib, scratch.path()).await?).await?;

    let (mut ours, mut alone) = (Vec::new(), Vec::new());
    for n in 0..size.of_at_least(5, 3) {
        let name = format!("import-{n}");
        let object = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": name},
            "spec": {"displayName": name, "sourceType": "download", "url": nginx.plain_url}});
        let start = Instant::now();
        client.post(IMAGES, &object).await?.ok()?;
        promptly_within(BOOT, async || {
            let image = client.get(&format!("{IMAGES}/{name}")).await?.ok()?;
            if is_true(&image, "Imported") { Ok(()) } else { bail!("not imported: {}", image["status"]) }
        })
        .await?;
        ours.push(start.elapsed());
        client.delete(&format!("{IMAGES}/{name}")).await?.ok()?;
        alone.push(by_hand(&nginx.plain_url, scratch.path()).await?);
    }
    let (ours, alone) = (median(&mut ours), median(&mut alone));
    report.row(&Row {
        what: &format!("import of a qcow2 image with {mib} MiB of data"),
        croft: ms(ours),
        rival: format!("{} (curl and qemu-img convert)", ms(alone)),
        ratio: Some(ratio(alone, ours)),
        goal: "0.9 x by hand".into(),
        met: ours.as_secs_f64() * 0.9 <= alone.as_secs_f64(),
    });
    Ok(())
}

/// So much that does not compress.
pub(crate) fn noise(mib: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut data = Vec::with_capacity(mib << 20);
    while data.len() < mib << 20 {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        data.extend_from_slice(&word.to_le_bytes());
    }
    data
}

/// A disk in qcow2 with so much in it that does not compress, in four times the room.
async fn image(mib: usize, dir: &Path) -> Result<Vec<u8>> {
    let (raw, qcow2) = (dir.join("source.raw"), dir.join("source.qcow2"));
    std::fs::write(&raw, noise(mib))?;
    std::fs::File::options().write(true).open(&raw)?.set_len(u64::try_from(mib)? << 22)?;
    run(Command::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(&raw).arg(&qcow2)).await?;
    let image = std::fs::read(&qcow2)?;
    std::fs::remove_file(raw)?;
    std::fs::remove_file(qcow2)?;
    Ok(image)
}

/// What an administrator would type, and the disk as durable as Croft makes it.
async fn by_hand(url: &str, dir: &Path) -> Result<Duration> {
    let (fetched, disk) = (dir.join("fetched"), dir.join("disk.raw"));
    let start = Instant::now();
    run(Command::new("curl").args(["-fsS", url, "-o"]).arg(&fetched)).await?;
    run(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(&fetched).arg(&disk)).await?;
    std::fs::File::open(&disk)?.sync_all()?;
    let took = start.elapsed();
    std::fs::remove_file(fetched)?;
    std::fs::remove_file(disk)?;
    Ok(took)
}

async fn run(command: &mut Command) -> Result<()> {
    let output = command.output().await.with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

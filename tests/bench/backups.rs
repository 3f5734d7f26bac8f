//! Snapshots and backups of a running machine with a disk of 10 GiB, beside zstd, cp and restic on the same data.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use croft_e2e::machines::{BOOT, CLAIMS, MACHINES, empty, is_true};
use croft_e2e::storage::{claim, run, volume_file};
use croft_testkit::{Client, Croft, Protocol, StoreKind, promptly_within};
use serde_json::{Value, json};

use crate::Size;
use crate::machines::{node_is_ready, noise};
use crate::report::{Report, Row, mib, ms, percentile, ratio, seconds};

const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
const OVERCOMMIT: &str = "/apis/harvesterhci.io/v1beta1/settings/overcommit-config";
const FULL_MIB: usize = 2048;
const BLOCK: u64 = 2 << 20;
/// Blocks that change between two backups.
const CHANGED: u64 = 32;
/// Snapshots of one volume.
const MANY: usize = 300;
/// How often each volume is read for the comparison: the quickest counts.
const READS: usize = 15;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start_node(StoreKind::Embedded, &[]).await?;
    let client = croft.client_over(Protocol::Http1)?;
    node_is_ready(&client).await?;
    let target = tempfile::tempdir()?;
    let value = json!({"type": "directory", "endpoint": format!("file://{}", target.path().display())});
    client.patch(SETTING, "merge-patch", &json!({"value": value.to_string()})).await?.ok()?;
    until(&client, SETTING, |setting| is_true(setting, "configured")).await?;
    // Two disks of 10 GiB with little in them, on a machine that may have less.
    let overcommit = json!({"value": json!({"cpu": 1600, "memory": 150, "storage": 1000}).to_string()});
    client.patch(OVERCOMMIT, "merge-patch", &overcommit).await?.ok()?;
    client.post(CLAIMS, &claim("disk", "harvester-longhorn", "10Gi")).await?.ok()?;
    let disk = volume_file(&croft, &client, "disk").await;
    let bench = Bench { mib: size.of(FULL_MIB), croft, client, disk, target: target.path().to_owned() };
    bench.fill()?;
    bench.client.post(MACHINES, &machine()).await?.ok()?;
    until(&bench.client, &format!("{MACHINES}/kept"), |it| it["status"]["ready"] == true).await?;
    bench.pauses(report).await?;
    bench.reads(size.of(MANY), report).await?;
    bench.backups(report).await
}

/// With nothing to boot: its processors run all the same.
fn machine() -> Value {
    let mut machine = empty("kept");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]);
    machine
}

async fn until(client: &Client, path: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    promptly_within(BOOT, async || {
        let object = client.get(path).await?.ok()?;
        if is_so(&object) { Ok(object) } else { bail!("{path}: {}", object["status"]) }
    })
    .await
}

struct Bench {
    croft: Croft,
    client: Client,
    disk: PathBuf,
    target: PathBuf,
    mib: usize,
}

impl Bench {
    /// Half of it compresses well, half does not, as disks are.
    fn fill(&self) -> Result<()> {
        let file = File::options().write(true).open(&self.disk)?;
        let (noise, text) = (noise(1), "the quick brown fox jumps over the lazy dog\n".repeat(12 << 10));
        for at in 0..self.mib {
            let mut piece = noise.clone();
            piece[..text.len()].copy_from_slice(text.as_bytes());
            // No two are the same, so that nothing is left out for being known.
            for sector in piece.chunks_mut(4096) {
                sector[..8].copy_from_slice(&at.to_le_bytes());
            }
            file.write_all_at(&piece, u64::try_from(at)? << 20)?;
        }
        Ok(file.sync_all()?)
    }

    async fn keep(&self, name: &str, ty: &str) -> Result<Duration> {
        let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
            "metadata": {"name": name}, "spec": {"type": ty,
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "kept"}}});
        let start = Instant::now();
        self.client.post(BACKUPS, &backup).await?.ok()?;
        let is_there =
            |it: &Value| it["status"]["readyToUse"] == true && (ty != "backup" || is_true(it, "MetadataReady"));
        until(&self.client, &format!("{BACKUPS}/{name}"), is_there).await?;
        Ok(start.elapsed())
    }

    /// How long the guest stood still, with the disk in one piece and in ten thousand.
    async fn pauses(&self, report: &mut Report) -> Result<()> {
        for (what, pieces) in [("in few pieces", 0), ("in 10,000 pieces", 10_000)] {
            let file = File::options().write(true).open(&self.disk)?;
            for at in 0..pieces {
                // Beyond the data that backups are measured with.
                file.write_all_at(&[1; 4096], (8 << 30) + at * (128 << 10))?;
            }
            file.sync_all()?;
            let mut pauses = Vec::new();
            for n in 0..10 {
                let name = format!("pause-{pieces}-{n}");
                self.keep(&name, "snapshot").await?;
                let snapshot = self.client.get(&format!("{SNAPSHOTS}/{name}-volume-disk")).await?.ok()?;
                let guest = snapshot["metadata"]["annotations"]["croft.io/snapshot-guest"].as_str().unwrap_or("{}");
                let pause = serde_json::from_str::<Value>(guest)?["pauseMs"].as_f64();
                pauses.push(Duration::from_secs_f64(pause.context("no pause is told")? / 1000.0));
                // As a guest does between two of them.
                file.write_all_at(&[2; 4096], 8 << 30)?;
            }
            let (p50, worst) = (percentile(&mut pauses, 0.5), percentile(&mut pauses, 1.0));
            let what = format!("snapshot of a running VM, 10 GiB {what}: guest pause");
            report.absolute(&what, format!("p50 {}, worst {}", ms(p50), ms(worst)), "50 ms", worst.as_millis() < 50);
        }
        Ok(())
    }

    /// The same volume twice, with the same data and the same writes to it: one is kept after each of them, the other never.
    async fn reads(&self, many: usize, report: &mut Report) -> Result<()> {
        let (mib, noise) = (self.mib / 4, noise(1));
        let mut files = Vec::new();
        for name in ["plain", "many"] {
            self.client.post(CLAIMS, &claim(name, "harvester-longhorn", "1Gi")).await?.ok()?;
            let path = volume_file(&self.croft, &self.client, name).await;
            let file = File::options().write(true).open(&path)?;
            for at in 0..mib {
                file.write_all_at(&noise, u64::try_from(at)? << 20)?;
            }
            file.sync_all()?;
            files.push((path, file));
        }
        let places = u64::try_from(mib)? << 4;
        for number in 0..many {
            let place = (u64::try_from(number)? * 7919 % places) << 16;
            for (_, file) in &files {
                file.write_all_at(&noise[..64 << 10], place)?;
                file.sync_data()?;
            }
            let name = format!("many-{number}");
            let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": "many"}}});
            self.client.post(SNAPSHOTS, &snapshot).await?.ok()?;
            until(&self.client, &format!("{SNAPSHOTS}/{name}"), |it| it["status"]["readyToUse"] == true).await?;
        }
        let mut best = [Duration::MAX; 2];
        for _ in 0..READS {
            for ((path, _), best) in files.iter().zip(&mut best) {
                let start = Instant::now();
                run("dd", &[&format!("if={}", text(path)?), "of=/dev/null", "bs=1M", "iflag=direct", "status=none"])?;
                *best = start.elapsed().min(*best);
            }
        }
        let [plain, kept] = best;
        report.row(&Row {
            what: &format!("read of a volume with {mib} MiB of data and {many} snapshots"),
            croft: seconds(kept),
            rival: format!("{} (the same without snapshots)", seconds(plain)),
            ratio: Some(ratio(plain, kept)),
            goal: "0.95 x".into(),
            met: kept.as_secs_f64() * 0.95 <= plain.as_secs_f64(),
        });
        // They would be in the way of what follows.
        for number in 0..many {
            self.client.delete(&format!("{SNAPSHOTS}/many-{number}")).await?.ok()?;
        }
        for name in ["plain", "many"] {
            self.client.delete(&format!("{CLAIMS}/{name}")).await?.ok()?;
        }
        let is_gone = |it: &Value| it["items"].as_array().is_some_and(|items| !items.iter().any(is_one_of_many));
        until(&self.client, SNAPSHOTS, is_gone).await.map(drop)
    }

    async fn backups(&self, report: &mut Report) -> Result<()> {
        // What is in the pieces was for the pauses alone.
        let disk = File::options().write(true).open(&self.disk)?;
        disk.set_len(8 << 30)?;
        disk.set_len(10 << 30)?;
        let plain = self.target.join("plain");
        run("cp", &["--sparse=always", "--reflink=never", text(&self.disk)?, text(&plain)?])?;
        File::options().write(true).open(&plain)?.set_len(u64::try_from(self.mib)? << 20)?;
        let before = peak(self.croft.process().id(), true)?;

        let first = self.keep("first", "backup").await?;
        // As cold as the snapshot that a backup is made of: another file with the same data, which nobody has read yet.
        let cold = self.disk.with_extension("cold");
        run("cp", &["--reflink=always", text(&self.disk)?, text(&cold)?])?;
        File::options().write(true).open(&cold)?.set_len(u64::try_from(self.mib)? << 20)?;
        let squeezed = timed("zstd", &["-q", "-f", "-1", text(&cold)?, "-o", text(&self.target.join("zst"))?])?;
        fs::remove_file(cold)?;
        report.row(&Row {
            what: &format!("first backup of 10 GiB with {} MiB of data", self.mib),
            croft: seconds(first),
            rival: format!("{} (zstd -1 to the same disk, and flush)", seconds(squeezed)),
            ratio: Some(ratio(squeezed, first)),
            goal: "0.7 x".into(),
            met: first.as_secs_f64() * 0.7 <= squeezed.as_secs_f64(),
        });

        let same = self.keep("same", "backup").await?;
        report.absolute("backup of the unchanged 10 GiB", seconds(same), "2 s", same <= Duration::from_secs(2));
        self.increment(&disk, report).await?;
        self.restore(&plain, report).await?;
        let peak = peak(self.croft.process().id(), false)?;
        let grown = format!("{} ({} before)", mib(peak), mib(before));
        report.absolute("memory of Croft's process at its peak meanwhile", grown, "200 MiB", peak < 200 << 20);
        self.restic(first, report)
    }

    async fn increment(&self, disk: &File, report: &mut Report) -> Result<()> {
        let blocks = u64::try_from(self.mib)? / 2;
        for n in 0..CHANGED {
            disk.write_all_at(&noise(1)[..4096], (n * blocks / CHANGED) * BLOCK + 4096 * n)?;
        }
        disk.sync_all()?;
        let known: HashSet<PathBuf> = stored(&self.target).into_iter().map(|(path, _)| path).collect();
        let took = self.keep("changed", "backup").await?;
        let new = stored(&self.target).into_iter().filter(|(path, _)| !known.contains(path));
        let moved: u64 = new.map(|(_, size)| size).sum();
        let limit = CHANGED * BLOCK;
        report.row(&Row {
            what: &format!("backup after {CHANGED} blocks of 2 MiB changed: bytes moved"),
            croft: format!("{} in {}", mib(moved), seconds(took)),
            rival: format!("{} (the blocks)", mib(limit)),
            ratio: None,
            goal: "1.1 x".into(),
            met: moved * 10 <= limit * 11,
        });
        Ok(())
    }

    /// From the target: its snapshot is not in the pool any more.
    async fn restore(&self, plain: &Path, report: &mut Report) -> Result<()> {
        let restore = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": "back"}, "spec": {"virtualMachineBackupName": "first",
            "virtualMachineBackupNamespace": "default", "newVM": true,
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "again"}}});
        let start = Instant::now();
        self.client.post(RESTORES, &restore).await?.ok()?;
        until(&self.client, &format!("{RESTORES}/back"), |it| it["status"]["complete"] == true).await?;
        let ours = start.elapsed();
        // Into the pool too, which is where a restored disk is.
        let copy = self.disk.with_extension("copy");
        let copied = timed("cp", &["--reflink=never", "--sparse=never", text(plain)?, text(&copy)?])?;
        fs::remove_file(copy)?;
        report.row(&Row {
            what: "restore of it from the target",
            croft: seconds(ours),
            rival: format!("{} (cp of the data, and flush)", seconds(copied)),
            ratio: Some(ratio(copied, ours)),
            goal: "0.7 x".into(),
            met: ours.as_secs_f64() * 0.7 <= copied.as_secs_f64(),
        });
        Ok(())
    }

    fn restic(&self, first: Duration, report: &mut Report) -> Result<()> {
        let repository = self.target.join("restic");
        let restic = |args: &[&str]| -> Result<Duration> {
            let (repository, start) = (text(&repository)?, Instant::now());
            let mut command = std::process::Command::new("restic");
            command.env("RESTIC_PASSWORD", "bench").args(["--quiet", "--no-cache", "--repo", repository]).args(args);
            let output = command.output().context("restic")?;
            if !output.status.success() {
                bail!("restic {args:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
            run("sync", &["-f", repository])?;
            Ok(start.elapsed())
        };
        restic(&["init"])?;
        let took = restic(&["backup", text(&self.disk)?])?;
        let again = restic(&["backup", "--force", text(&self.disk)?])?;
        report.row(&Row {
            what: "restic of the same raw file, first and again",
            croft: seconds(first),
            rival: format!("{}, {}", seconds(took), seconds(again)),
            ratio: Some(ratio(took, first)),
            goal: "-".into(),
            met: true,
        });
        Ok(())
    }
}

fn is_one_of_many(snapshot: &Value) -> bool {
    snapshot["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("many-"))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// Until it is on the disk: the last argument is what it makes.
fn timed(program: &str, args: &[&str]) -> Result<Duration> {
    let start = Instant::now();
    run(program, args)?;
    File::open(args.last().context("no file")?)?.sync_all()?;
    Ok(start.elapsed())
}

/// All files of the backups, with their sizes.
fn stored(target: &Path) -> Vec<(PathBuf, u64)> {
    let (mut found, mut dirs) = (Vec::new(), vec![target.join("backupstore"), target.join("harvester")]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => dirs.push(entry.path()),
                Ok(about) => found.push((entry.path(), about.len())),
                Err(_) => {}
            }
        }
    }
    found
}

/// The most memory that a process has had, since it was last asked to forget it.
fn peak(pid: u32, forget: bool) -> Result<u64> {
    if forget {
        fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

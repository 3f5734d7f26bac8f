//! Reading backups back: what a restore would find.

use std::fmt::Write;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use croft_backup::harvester::VmBackup;
use croft_backup::{Damage, Progress, Transfer, Verified};
use serde_json::{Value, json};

use super::target::{Opened, TargetArgs};
use crate::client::ClientArgs;
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, print, progress};

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The backups
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// All of the namespace that are on the target
    #[arg(long, conflicts_with = "names")]
    all: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One disk of a backup, and what is wrong with it.
struct Checked {
    backup: String,
    volume: String,
    size: u64,
    found: Result<Verified, String>,
}

pub(super) async fn run(client: &ClientArgs, args: &VerifyArgs) -> Result<(), Failure> {
    let opened = args.target.open(client).await?;
    let mut checked = Vec::new();
    for backup in wanted(&opened, args).await? {
        checked.extend(check(&opened, &backup).await);
    }
    match args.output.output {
        Format::Table | Format::Wide => print(&checked.iter().map(report).collect::<String>())?,
        format => {
            let items: Vec<Value> = checked.iter().map(document).collect();
            print(&output::document(format, &json!({ "items": items }))?)?;
        }
    }
    let bad = checked.iter().filter(|one| !one.is_sound()).count();
    if bad > 0 {
        return Err(anyhow!("{bad} of {} disks cannot be restored as they were", checked.len()).into());
    }
    Ok(())
}

async fn wanted(opened: &Opened, args: &VerifyArgs) -> Result<Vec<VmBackup>, Failure> {
    if args.all {
        let all = opened.store.vm_backups().await.context("cannot list the backups of the target")?;
        return Ok(all.into_iter().filter(|backup| backup.namespace == opened.namespace).collect());
    }
    let mut found = Vec::new();
    for name in &args.names {
        let backup = opened.store.vm_backup(&opened.namespace, name).await.context("cannot read the target")?;
        let place = &opened.namespace;
        found.push(backup.ok_or_else(|| anyhow!("the target has no backup {name} of namespace {place}"))?);
    }
    Ok(found)
}

/// Each disk by itself: one that cannot be read does not keep the others from being looked at.
async fn check(opened: &Opened, backup: &VmBackup) -> Vec<Checked> {
    let mut checked = Vec::new();
    for disk in &backup.volume_backups {
        let volume = disk.volume_name.clone();
        let (size, found) = match (disk.backup_volume(), disk.longhorn_backup_name.as_deref()) {
            (Some(place), Some(name)) => match read(opened, place, name, &format!("{}: {volume}", backup.name)).await {
                Ok((size, found)) => (size, Ok(found)),
                Err(error) => (0, Err(format!("{error:#}"))),
            },
            _ => (0, Err("its description does not say where it is".to_owned())),
        };
        checked.push(Checked { backup: backup.name.clone(), volume, size, found });
    }
    checked
}

async fn read(opened: &Opened, volume: &str, backup: &str, what: &str) -> anyhow::Result<(u64, Verified)> {
    let open = opened.disk(volume, backup).await?;
    let bar = progress::transfer(what, Some(open.size()));
    let shown = bar.clone();
    let tell = move |progress: Progress| {
        shown.set_length(progress.total);
        shown.set_position(progress.done);
    };
    let transfer = Transfer { progress: Some(Arc::new(tell)), ..Transfer::default() };
    let found = open.verify(&transfer).await;
    bar.finish_and_clear();
    let size = open.size();
    open.close().await;
    Ok((size, found?))
}

impl Checked {
    fn is_sound(&self) -> bool {
        self.found.as_ref().is_ok_and(Verified::is_sound)
    }
}

fn word(damage: Damage) -> &'static str {
    match damage {
        Damage::Missing => "missing",
        Damage::Truncated => "truncated",
        Damage::Corrupted => "corrupted",
    }
}

fn report(checked: &Checked) -> String {
    let what = format!("backup {}, disk {}", checked.backup, checked.volume);
    let found = match &checked.found {
        Err(why) => return format!("{what}: {why}\n"),
        Ok(found) if found.is_sound() => {
            return format!("{what}: sound, {} blocks of {}\n", found.blocks, output::bytes(checked.size));
        }
        Ok(found) => found,
    };
    let mut text = format!("{what}: {} of {} blocks are bad\n", found.bad, found.blocks);
    // Writing to a String cannot fail.
    for block in &found.named {
        let _ = writeln!(text, "  {} {} at {}", word(block.damage), block.checksum, block.offset);
    }
    let more = found.bad.saturating_sub(found.named.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
    text
}

fn document(checked: &Checked) -> Value {
    let mut document = json!({
        "backup": checked.backup, "disk": checked.volume, "size": checked.size, "isSound": checked.is_sound(),
    });
    match &checked.found {
        Err(why) => document["error"] = json!(why),
        Ok(found) => {
            let bad = found.named.iter().map(|block| {
                json!({ "checksum": block.checksum.to_string(), "offset": block.offset, "damage": word(block.damage) })
            });
            document["blocks"] = json!(found.blocks);
            document["bad"] = json!(found.bad);
            document["badBlocks"] = bad.collect();
        }
    }
    document
}

#[cfg(test)]
mod tests {
    use croft_backup::{BadBlock, Checksum};

    use super::*;

    fn checked(found: Result<Verified, String>) -> Checked {
        Checked { backup: "b".to_owned(), volume: "root".to_owned(), size: 4 << 20, found }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let sound = checked(Ok(Verified { blocks: 2, ..Verified::default() }));
        assert_eq!(report(&sound), "backup b, disk root: sound, 2 blocks of 4.0 MiB\n");
        let block = BadBlock { checksum: Checksum::of(b"x"), offset: 2 << 20, damage: Damage::Truncated };
        let bad = checked(Ok(Verified { blocks: 2, bad: 2, named: vec![block.clone()] }));
        let text = report(&bad);
        assert!(text.contains("2 of 2 blocks are bad"), "{text}");
        assert!(text.contains(&format!("truncated {} at 2097152", block.checksum)), "{text}");
        assert!(text.contains("and 1 more"), "{text}");
        assert_eq!(document(&bad)["badBlocks"][0]["damage"], "truncated");
        let lost = checked(Err("it is gone".to_owned()));
        assert!(!lost.is_sound() && !bad.is_sound() && sound.is_sound());
        assert_eq!(report(&lost), "backup b, disk root: it is gone\n");
        assert_eq!(document(&lost)["error"], "it is gone");
    }
}

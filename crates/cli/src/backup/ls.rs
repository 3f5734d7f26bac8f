//! What is in a backup.

use clap::Args;
use croft_backup::harvester::VmBackup;
use croft_files::{Entry, FileKind, partitions};
use serde_json::{Value, json};

use super::inside;
use super::place::Place;
use super::target::TargetArgs;
use crate::client::ClientArgs;
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, print};

#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// What to look at
    #[arg(value_name = "BACKUP")]
    place: Place,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is shown: columns for people, objects for programs.
struct Shown {
    header: &'static [&'static str],
    rows: Vec<Vec<String>>,
    items: Vec<Value>,
}

pub(super) async fn run(client: &ClientArgs, args: &LsArgs) -> Result<(), Failure> {
    let opened = args.target.open(client).await?;
    let backup = inside::description(&opened, &args.place.backup).await?;
    let place = args.place.clone();
    let shown = if place.disk.is_none() && place.path.is_none() {
        disks(&backup)
    } else {
        let disk = inside::disk(&backup, &place)?;
        let name = disk.volume_name.clone();
        let look = move |disk: &std::sync::Arc<dyn croft_files::Disk>| match &place.path {
            None => {
                let parts = partitions(disk)?;
                let wanted = |number: u32| place.partition.is_none_or(|it| it == number);
                Ok(table(parts.iter().filter(|part| wanted(part.number))))
            }
            Some(path) => directory(&inside::files(disk, &place, &name)?, path),
        };
        inside::with_disk(&opened, disk, look).await?
    };
    match args.output.output {
        Format::Table | Format::Wide => print(&output::rows(shown.header, shown.rows)),
        format => print(&output::document(format, &json!({ "items": shown.items }))?),
    }
}

fn disks(backup: &VmBackup) -> Shown {
    let mut shown = Shown { header: &["disk", "size", "volume"], rows: Vec::new(), items: Vec::new() };
    for disk in &backup.volume_backups {
        let volume = disk.backup_volume().unwrap_or_default();
        let size = disk.volume_size.map(output::bytes).unwrap_or_default();
        shown.rows.push(vec![disk.volume_name.clone(), size, volume.to_owned()]);
        shown.items.push(json!({ "disk": disk.volume_name, "size": disk.volume_size, "volume": volume }));
    }
    shown
}

fn table<'a>(parts: impl Iterator<Item = &'a croft_files::Partition>) -> Shown {
    let header = &["partition", "start", "size", "holds", "label"];
    let mut shown = Shown { header, rows: Vec::new(), items: Vec::new() };
    for part in parts {
        let (kind, label) = (part.content.kind(), part.content.label());
        let number = if part.number == 0 { "-".to_owned() } else { part.number.to_string() };
        let row = [number, part.start.to_string(), output::bytes(part.size), kind.to_owned(), label.to_owned()];
        shown.rows.push(row.into());
        shown.items.push(json!({
            "partition": part.number, "start": part.start, "size": part.size, "holds": kind, "label": label,
            "isReadable": part.content.is_readable(),
        }));
    }
    shown
}

fn directory(files: &croft_files::FileSystem, path: &str) -> anyhow::Result<Shown> {
    let found = files.resolve(path.as_bytes())?;
    let facts = files.facts(&found)?;
    let entries = match facts.kind {
        FileKind::Directory => files.entries(&found)?,
        _ => vec![Entry { name: path.into(), facts }],
    };
    let header = &["mode", "owner", "group", "size", "modified", "name"];
    let mut shown = Shown { header, rows: Vec::new(), items: Vec::new() };
    for Entry { name, facts } in entries {
        let mode = mode(facts.kind, facts.mode);
        // Whoever prints it is not to be told what to do by it.
        let name: String = name
            .to_string_lossy()
            .chars()
            .flat_map(|it| if it.is_control() { it.escape_default().collect() } else { vec![it] })
            .collect();
        let modified = facts.modified.map(croft_meta::time::format_seconds).unwrap_or_default();
        let (uid, gid) = (facts.uid.to_string(), facts.gid.to_string());
        shown.rows.push(vec![mode.clone(), uid, gid, facts.size.to_string(), modified.clone(), name.clone()]);
        shown.items.push(json!({
            "name": name, "mode": mode, "uid": facts.uid, "gid": facts.gid, "size": facts.size, "modified": modified,
        }));
    }
    Ok(shown)
}

/// As `ls -l` writes it.
fn mode(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Special => '?',
    };
    let letters = ['r', 'w', 'x'].iter().cycle().zip((0..9).rev());
    let bits = letters.map(|(letter, bit)| if mode & (1 << bit) == 0 { '-' } else { *letter });
    std::iter::once(first).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_does() {
        assert_eq!(mode(FileKind::Regular, 0o640), "-rw-r-----");
        assert_eq!(mode(FileKind::Directory, 0o4755), "drwxr-xr-x");
        assert_eq!(mode(FileKind::Symlink, 0o777), "lrwxrwxrwx");
    }
}

//! `croft store salvage`: out of a damaged directory into a file that a new server can be set up with.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use croft_meta::time::format_seconds;
use croft_store::Record;
use croft_store::embedded::{Salvaged, salvage};
use croft_store::saved::{FORMAT, Head, Writer};
use croft_store::sealed::{SealOptions, Sealer};
use jiff::Timestamp;
use serde_json::Value;

use crate::server::leave_no_core;
use crate::{Failure, download, print};

const KUBE_SYSTEM: &str = "registry/core/namespaces/kube-system";
const OBJECTS: &str = "registry/";
const EVENTS: &str = "registry/core/events/";

#[derive(Debug, Args)]
pub(super) struct SalvageArgs {
    /// The data directory of a server that does not run
    data_dir: PathBuf,
    /// The file to write, which must not be there yet
    file: PathBuf,
    /// The keys that Secrets are encrypted with [default: encryption.key in the data directory]
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
}

pub(super) async fn run(args: SalvageArgs) -> Result<(), Failure> {
    // All Secrets of the cluster pass through.
    leave_no_core();
    let work = tokio::task::spawn_blocking(move || salvaged(&args));
    let told = work.await.context("it was cut short")??;
    print(&told)
}

fn salvaged(args: &SalvageArgs) -> anyhow::Result<String> {
    // Looked at before the hours that reading may take.
    let out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&args.file)
        .with_context(|| format!("cannot write {}", args.file.display()))?;
    let done = save(args, out);
    if done.is_err() {
        // It is this command's own, and half of it is good for nothing.
        let _ = std::fs::remove_file(&args.file);
    }
    done
}

fn save(args: &SalvageArgs, mut out: File) -> anyhow::Result<String> {
    let key_file = args.encryption_key_file.clone().unwrap_or_else(|| args.data_dir.join("encryption.key"));
    // Nothing is to be encrypted, so that no key is made where there is none.
    let keys = Sealer::open(&SealOptions { key_file, prefixes: Vec::new() }, "")?;
    let mut salvaged = salvage(&args.data_dir.join("store"))?;
    let files = files(&args.data_dir.join("pki"))?;
    let head = Head {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: cluster(&salvaged.records),
        saved: format_seconds(Timestamp::now()),
        revision: salvaged.revision.0,
    };
    let mut writer = Writer::new(head)?;
    for (name, content) in &files {
        writer.file(name, content)?;
    }
    let (mut kept, mut unopened) = (0_u64, Vec::new());
    for record in std::mem::take(&mut salvaged.records) {
        // What is beside the objects is of a moment that has passed, such as the addresses of servers.
        if record.key.starts_with(EVENTS) || !record.key.starts_with(OBJECTS) {
            continue;
        }
        match keys.unseal(&record).and_then(|record| writer.record(&record).map_err(|error| error.to_string())) {
            Ok(()) => kept += 1,
            Err(why) => {
                writer.unreadable();
                unopened.push(format!("{}: {why}", record.key));
            }
        }
        out.write_all(&writer.take())?;
    }
    out.write_all(&writer.finish()?)?;
    out.sync_all()?;
    download::keep_name(&args.file)?;
    if kept == 0 {
        bail!("nothing could be read");
    }
    Ok(report(&args.file, kept, files.len(), &salvaged, &unopened))
}

/// The keys and certificates, by their names in the data directory; none if they are lost.
fn files(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    if !dir.exists() {
        return Ok(found);
    }
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What begins with a dot is half written.
        if entry.file_type()?.is_file() && !name.starts_with('.') {
            let content = std::fs::read_to_string(entry.path());
            found.push((
                format!("pki/{name}"),
                content.with_context(|| format!("cannot read {}", entry.path().display()))?,
            ));
        }
    }
    found.sort();
    Ok(found)
}

/// The uid that the cluster is known by.
fn cluster(records: &[Record]) -> String {
    let namespace = records.iter().find(|record| record.key == KUBE_SYSTEM);
    let object = namespace.and_then(|record| serde_json::from_slice::<Value>(&record.value).ok()).unwrap_or_default();
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn report(file: &Path, kept: u64, files: usize, salvaged: &Salvaged, unopened: &[String]) -> String {
    let mut told =
        format!("{}: {kept} objects and {files} files; restore them with \"croft state restore\"\n", file.display());
    let mut list = |what: &str, keys: &[String]| {
        if !keys.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(told, "\n{what}:");
            for key in keys {
                let _ = writeln!(told, "  {}", key.trim_start_matches("registry/"));
            }
        }
    };
    list("lost", &salvaged.lost);
    list("only an older version could be read of", &salvaged.stale);
    list("could be read, but not opened", unopened);
    if salvaged.lost_first_page {
        told += "\nthe first page of the file is lost; it was read with that of a new store\n";
    }
    if salvaged.has_gaps {
        told += "\nneither the table nor its index can be read to its end: there may have been objects that nobody knows of any more\n";
    } else if salvaged.lost.is_empty() && salvaged.stale.is_empty() && unopened.is_empty() {
        told += "nothing is lost\n";
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_objects_are_brought_back() {
        use croft_store::saved::{Item, Reader};
        use croft_store::{Embedded, EmbeddedOptions, Op, Store, Txn};
        let place = tempfile::tempdir().unwrap();
        let (data_dir, file) = (place.path().join("data"), place.path().join("salvaged"));
        let store = Embedded::open(&data_dir.join("store"), EmbeddedOptions::default()).unwrap();
        // A server that is gone would be taken for one that runs, for ever.
        let keys = ["apiservers/10.0.0.1:6443", "registry/core/events/a/b", "registry/core/pods/a/b"];
        let put = |key: &str| Op::Put { key: key.to_owned(), value: "{}".into(), lease: None };
        store.txn(Txn { compare: Vec::new(), ops: keys.map(put).into() }).await.unwrap();
        store.close().await.unwrap();
        let args = SalvageArgs { data_dir, file: file.clone(), encryption_key_file: None };
        salvaged(&args).unwrap();
        let mut reader = Reader::open(File::open(&file).unwrap()).unwrap();
        let mut found = Vec::new();
        while let Some(Item::Record(record)) = reader.next().unwrap() {
            found.push(record.key);
        }
        assert_eq!(found, ["registry/core/pods/a/b"]);
    }

    #[test]
    fn losses_are_named() {
        let salvaged = Salvaged {
            lost: vec!["registry/core/pods/a/b".to_owned()],
            stale: vec!["registry/core/nodes/n".to_owned()],
            ..Salvaged::default()
        };
        let told = report(Path::new("/x"), 3, 2, &salvaged, &[]);
        assert!(told.contains("lost:\n  core/pods/a/b\n") && told.contains("older version"), "{told}");
        assert!(!told.contains("nothing is lost"), "{told}");
        assert!(report(Path::new("/x"), 3, 2, &Salvaged::default(), &[]).ends_with("nothing is lost\n"));
    }
}

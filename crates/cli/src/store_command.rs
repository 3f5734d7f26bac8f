//! `croft store`: how the place is where all objects are kept, and what to do when it is ill.

mod salvage;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Client, ClientArgs};
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, print};

const PATH: &str = "/croft/v1/store";
/// How often it is asked whether it is done.
const POLL: Duration = Duration::from_millis(200);

const DEFRAG_HELP: &str = "Works on the running server, for its admin. The embedded store goes on taking writes meanwhile, and does \
the same by itself when a quarter of the file is free. Members of etcd are defragmented one after the other, the leader last, and \
only while all of them are well; then an alarm that etcd was full is disarmed. With users in etcd, the server's needs the role root.";
const CHECK_HELP: &str = "Without DATA_DIR it is the running server that reads its store, and every object in it, for its admin. With it, no \
server may run there; the files are left as they are. The exit code is 1 if anything is damaged.";
const SALVAGE_HELP: &str = "Works without a server: none may run on DATA_DIR, which is left as it is. Only for the embedded store. Then move \
DATA_DIR/store away and give \"croft state restore FILE --data-dir DATA_DIR\".";

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Tell how large the running server's store is, how much of that is in use, and how the members of etcd are
    Status {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Give back what is free in the running server's store
    #[command(after_help = DEFRAG_HELP)]
    Defrag {
        /// Forget all history first, not only what is older than some minutes: clients that are behind look again (410)
        #[arg(long)]
        compact: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Read all of a store, and name what is damaged
    #[command(after_help = CHECK_HELP)]
    Check {
        /// The data directory of a server that does not run
        data_dir: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Save what can be read of a damaged store to a file for "croft state restore", and tell what is lost
    #[command(after_help = SALVAGE_HELP)]
    Salvage(salvage::SalvageArgs),
}

pub(crate) async fn run(args: StoreArgs) -> Result<(), Failure> {
    match args.command {
        StoreCommand::Status { output } => show(&args.client.connect().await?.get(PATH).await?, output),
        StoreCommand::Defrag { compact, output } => {
            let path = format!("{PATH}/defragment?compact={compact}");
            let status = finished(&args.client.connect().await?, &path, "defragmentation").await?;
            show(&status, output)
        }
        StoreCommand::Check { data_dir, output } => {
            let problems = if let Some(data_dir) = data_dir {
                check_directory(&data_dir).await?
            } else {
                let client = args.client.connect().await?;
                let status = finished(&client, &format!("{PATH}/check"), "check").await?;
                serde_json::from_value(status["check"]["problems"].clone())?
            };
            judge(&problems, output)
        }
        StoreCommand::Salvage(salvage) => salvage::run(salvage).await,
    }
}

/// Has the server do it, and waits for its end.
async fn finished(client: &Client, path: &str, job: &str) -> anyhow::Result<Value> {
    let mut status = client.create(path, &json!({})).await?;
    let number = status[job]["number"].clone();
    while status[job]["seconds"].is_null() {
        tokio::time::sleep(POLL).await;
        status = client.get(PATH).await?;
        if status[job]["number"] != number {
            return Err(anyhow!("the server was restarted meanwhile; give the command again"));
        }
    }
    match status[job]["error"].as_str() {
        Some(error) => Err(anyhow!("{error}")),
        None => Ok(status),
    }
}

async fn check_directory(data_dir: &Path) -> anyhow::Result<Vec<String>> {
    let dir = data_dir.join("store");
    let checking = tokio::task::spawn_blocking(move || croft_store::embedded::check(&dir));
    Ok(checking.await.context("the check was cut short")??)
}

/// Damage is a failure of the command, so that scripts notice.
fn judge(problems: &[String], output: OutputArgs) -> Result<(), Failure> {
    match output.output {
        Format::Table | Format::Wide if problems.is_empty() => print("no damage was found\n")?,
        Format::Table | Format::Wide => print(&(problems.join("\n") + "\n"))?,
        format => print(&output::document(format, &json!({ "problems": problems }))?)?,
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "the store is damaged; save the state of the running server (\"croft state save\") and restore it, or one that was saved \
         before, or take what can be read with \"croft store salvage\": see docs/store.md"
    )
    .into())
}

fn show(status: &Value, output: OutputArgs) -> Result<(), Failure> {
    match output.output {
        Format::Table | Format::Wide => print(&words(status)),
        format => print(&output::document(format, status)?),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn bytes(value: &Value) -> String {
    output::bytes(value.as_u64().unwrap_or_default())
}

fn words(status: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let compacted = match status["lastCompaction"].as_str() {
        Some(when) => format!("{} is the oldest kept, since {when}", number(&status["compactedRevision"])),
        None => format!("{} is the oldest kept", number(&status["compactedRevision"])),
    };
    let mut told = format!(
        "store     {}\nrevision  {}, {compacted}\nsize      {}, of which {} in use; {} can be given back\n",
        text(&status["engine"]),
        number(&status["revision"]),
        bytes(&status["sizeBytes"]),
        bytes(&status["inUseBytes"]),
        bytes(&status["reclaimableBytes"]),
    );
    // Writing to a string does not fail.
    let _ = match status["readOnly"].as_str() {
        Some(why) => writeln!(told, "writes    refused: {why}"),
        None => writeln!(told, "writes    taken"),
    };
    for (job, name) in [("defragmentation", "defrag"), ("check", "check")] {
        if status[job].is_object() {
            let _ = writeln!(told, "{name:<10}{}", job_words(&status[job]));
        }
    }
    let members = status["members"].as_array().map_or(&[][..], Vec::as_slice);
    if !members.is_empty() {
        let header = ["MEMBER", "ROLE", "VERSION", "SIZE", "IN USE", "HEALTH"];
        told = told + "\n" + &output::rows(&header, members.iter().map(member_row));
    }
    told
}

fn job_words(job: &Value) -> String {
    let when = text(&job["started"]);
    let Some(seconds) = job["seconds"].as_f64() else { return format!("runs since {when}") };
    if let Some(error) = job["error"].as_str() {
        return format!("{when}, failed: {error}");
    }
    let found = match job["problems"].as_array() {
        Some(problems) if problems.is_empty() => format!("{} objects, no damage was found", job["records"]),
        Some(problems) => format!("{} places are damaged", problems.len()),
        None => format!("from {} to {}", bytes(&job["beforeBytes"]), bytes(&job["afterBytes"])),
    };
    format!("{when}, in {seconds:.1} s: {found}")
}

fn member_row(member: &Value) -> Vec<String> {
    let problems = member["problems"].as_array().map_or(&[][..], Vec::as_slice);
    let problems: Vec<String> = problems.iter().map(text).collect();
    vec![
        text(&member["endpoint"]),
        if member["isLeader"] == true { "leader".to_owned() } else { "member".to_owned() },
        text(&member["version"]),
        bytes(&member["sizeBytes"]),
        bytes(&member["inUseBytes"]),
        if problems.is_empty() { "well".to_owned() } else { problems.join("; ") },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_told_in_words() {
        let mut status = json!({"engine": "embedded", "revision": 12, "compactedRevision": 3, "sizeBytes": 4096,
            "inUseBytes": 2048, "reclaimableBytes": 2048});
        let told = words(&status);
        assert!(told.contains("revision  12, 3 is the oldest kept\n"), "{told}");
        assert!(told.contains("4.0 KiB, of which 2.0 KiB in use; 2.0 KiB can be given back"), "{told}");
        assert!(told.contains("writes    taken") && !told.contains("MEMBER"), "{told}");
        status["readOnly"] = json!("no space");
        status["check"] = json!({"started": "today", "seconds": 0.25, "records": 7, "problems": []});
        status["defragmentation"] = json!({"started": "now"});
        status["members"] = json!([
            {"endpoint": "http://a", "isLeader": true, "version": "3.4.23", "sizeBytes": 1, "inUseBytes": 1},
            {"endpoint": "http://b", "problems": ["it does not answer"]},
        ]);
        let told = words(&status);
        assert!(
            told.contains("refused: no space") && told.contains("leader") && told.contains("it does not answer"),
            "{told}"
        );
        assert!(told.contains("check     today, in 0.2 s: 7 objects, no damage was found\n"), "{told}");
        assert!(told.contains("defrag    runs since now\n"), "{told}");
    }

    #[test]
    fn damage_is_a_failure() {
        let quiet = || OutputArgs { output: Format::Json };
        assert!(judge(&[], quiet()).is_ok());
        assert!(judge(&["row 1".to_owned()], quiet()).is_err());
    }
}

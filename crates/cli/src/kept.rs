//! Machines that are kept as they were: what `croft snapshot` and `croft backup` have in common.

mod restore;

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use croft_api::machine_state::WITH_MEMORY;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::segment;
use crate::client::{BACKUPS, Client, Kind};
use crate::confirm::ConfirmArgs;
use crate::output::{self, Format, OutputArgs};
use crate::progress::Distant;
use crate::wait::{self, Seen};
use crate::{Failure, print, progress};

pub(crate) use restore::{RestoreArgs, restore};

/// Disks can be large, and targets slow.
const PATIENCE: Duration = Duration::from_hours(24);

/// Where it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Snapshot,
    Backup,
}

impl Sort {
    /// As people and the API call it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Backup => "backup",
        }
    }

    fn of(object: &Value) -> Self {
        if object["spec"]["type"] == "snapshot" { Self::Snapshot } else { Self::Backup }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The virtual machine
    #[arg(value_name = "MACHINE")]
    pub(crate) source: String,
    /// What to call it [default: MACHINE and the time]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long the guest's file systems may be held still, for example 30s
    #[arg(long, value_name = "TIME")]
    freeze_deadline: Option<String>,
    /// With the guest's memory, which only snapshots have.
    #[arg(skip)]
    pub(crate) has_memory: bool,
    /// Return once it is there
    #[arg(short, long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Those of one virtual machine
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,
    /// Those of all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Which ones
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
    /// Return once they are gone
    #[arg(short, long)]
    pub(crate) wait: bool,
}

impl CreateArgs {
    /// What it is to be called.
    pub(crate) fn name(&self) -> anyhow::Result<String> {
        let name = self.name.clone();
        let name = name.unwrap_or_else(|| format!("{}-{}", self.source, Timestamp::now().strftime("%Y%m%d-%H%M%S")));
        Ok(segment(&name)?.to_owned())
    }
}

pub(crate) async fn create(client: &Client, sort: Sort, args: &CreateArgs) -> Result<(), Failure> {
    let name = args.name().map_err(Failure::usage)?;
    let machine = segment(&args.source).map_err(Failure::usage)?;
    let mut object = wanted(sort, &name, machine, args.freeze_deadline.as_deref());
    if args.has_memory {
        object["metadata"]["annotations"] = json!({ WITH_MEMORY: "true" });
    }
    let made = client.create(&BACKUPS.all(&client.namespace), &object).await?;
    if !args.wait {
        return told(&made, args.output, &format!("{} {name} is being made", sort.word()));
    }
    let made = ready(client, BACKUPS, &name).await?;
    told(&made, args.output, &format!("{} {name} is ready", sort.word()))
}

fn wanted(sort: Sort, name: &str, machine: &str, freeze: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": { "name": name },
        "spec": { "type": sort.word(), "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine } },
    });
    if let Some(freeze) = freeze {
        object["spec"]["fsFreezeDeadline"] = json!(freeze);
    }
    object
}

/// The object for a program, a sentence for people.
pub(crate) fn told(object: &Value, output: OutputArgs, sentence: &str) -> Result<(), Failure> {
    match output.output {
        Format::Table | Format::Wide => print(&format!("{sentence}\n")),
        format => print(&output::document(format, object)?),
    }
}

/// Waits until it can be used, with a bar.
pub(crate) async fn ready(client: &Client, kind: Kind, name: &str) -> anyhow::Result<Value> {
    let bar = Distant::new(name);
    wait::until(client, kind, &client.namespace, name, PATIENCE, |object| {
        let Some(object) = object else { bail!("{name} was deleted meanwhile") };
        let status = &object["status"];
        bar.tell(status["progress"].as_u64().unwrap_or_default(), speed(object));
        if status["readyToUse"] == true {
            return Ok(Seen::Done(object.clone()));
        }
        match status["error"]["message"].as_str() {
            Some(why) => bail!("{name} could not be made, and is tried again until it is deleted: {why}"),
            None => Ok(Seen::NotYet),
        }
    })
    .await
}

/// Bytes in a second, while it is on its way.
fn speed(object: &Value) -> Option<u64> {
    object["metadata"]["annotations"][croft_api::longhorn::SPEED].as_str()?.parse().ok()
}

pub(crate) async fn list(client: &Client, sort: Sort, args: &ListArgs) -> Result<(), Failure> {
    let namespace = if args.all_namespaces { "" } else { &client.namespace };
    let mut list = client.get(&BACKUPS.all(namespace)).await.context("cannot list")?;
    let is_shown = |object: &Value| {
        let machine = &object["spec"]["source"]["name"];
        Sort::of(object) == sort && args.vm.as_deref().is_none_or(|vm| machine == vm)
    };
    if let Some(items) = list["items"].as_array_mut() {
        items.retain(is_shown);
    }
    let format = args.output.output;
    if !matches!(format, Format::Table | Format::Wide) {
        return print(&output::document(format, &list)?);
    }
    let found: &[Value] = list["items"].as_array().map_or(&[], Vec::as_slice);
    if found.is_empty() {
        let place = if args.all_namespaces { String::new() } else { format!(" in namespace {namespace}") };
        eprintln!("no {}s{place}", sort.word());
        return Ok(());
    }
    print(&table(found, args.all_namespaces, format == Format::Wide))
}

fn table(found: &[Value], with_namespace: bool, is_wide: bool) -> String {
    let mut header = vec!["name", "machine", "state", "size", "made"];
    if with_namespace {
        header.insert(0, "namespace");
    }
    if is_wide {
        header.push("schedule");
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |object: &Value| {
        let (metadata, status) = (&object["metadata"], &object["status"]);
        let mut row = vec![
            text(&metadata["name"]),
            text(&object["spec"]["source"]["name"]),
            state(object),
            size(status).map(output::bytes).unwrap_or_default(),
            text(status.get("creationTime").unwrap_or(&metadata["creationTimestamp"])),
        ];
        if with_namespace {
            row.insert(0, text(&metadata["namespace"]));
        }
        if is_wide {
            row.push(text(&metadata["annotations"]["harvesterhci.io/svmbackupId"]));
        }
        row
    };
    output::rows(&header, found.iter().map(row))
}

fn state(object: &Value) -> String {
    let status = &object["status"];
    if status["readyToUse"] == true {
        return "ready".to_owned();
    }
    if let Some(why) = status["error"]["message"].as_str() {
        return format!("failed: {why}");
    }
    let speed = speed(object).map(|speed| format!(", {}/s", output::bytes(speed))).unwrap_or_default();
    format!("{} %{speed}", status["progress"].as_u64().unwrap_or_default())
}

/// Of its disks together.
fn size(status: &Value) -> Option<u64> {
    let volumes = status["volumeBackups"].as_array()?;
    volumes.iter().map(|volume| volume["volumeSize"].as_u64()).sum()
}

pub(crate) async fn delete(client: &Client, sort: Sort, args: &DeleteArgs) -> Result<(), Failure> {
    for name in &args.names {
        find(client, sort, name).await?;
    }
    args.confirm.deletion(&format!("{} {}", sort.word(), args.names.join(", ")))?;
    remove(client, BACKUPS, sort.word(), args).await
}

pub(crate) async fn remove(client: &Client, kind: Kind, word: &str, args: &DeleteArgs) -> Result<(), Failure> {
    for name in &args.names {
        client.delete(&kind.one(&client.namespace, name)?).await?;
        if args.wait {
            let bar = progress::waiting(&format!("{name}: going"));
            let gone = wait::until(client, kind, &client.namespace, name, PATIENCE, |object| {
                Ok(if object.is_none() { Seen::Done(()) } else { Seen::NotYet })
            });
            let gone = gone.await;
            bar.finish_and_clear();
            gone?;
        }
        print(&format!("{word} {name} is deleted\n"))?;
    }
    Ok(())
}

/// Both sorts are objects of one kind: what is asked for as one must not be the other.
async fn find(client: &Client, sort: Sort, name: &str) -> anyhow::Result<Value> {
    let found = client.get(&BACKUPS.one(&client.namespace, name)?).await?;
    let is = Sort::of(&found);
    if is != sort {
        bail!("{name} is a {word}: use \"croft {word}\"", word = is.word());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(status: &Value) -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2026-11-16T12:00:00Z",
                "annotations": {"harvesterhci.io/svmbackupId": "n/nightly"}},
            "spec": {"type": "snapshot", "source": {"name": "web"}}, "status": status,
        })
    }

    #[test]
    fn states_are_words() {
        let of = |status: Value| state(&json!({ "status": status }));
        assert_eq!(of(json!({"readyToUse": true, "error": {"message": "before"}})), "ready");
        assert_eq!(of(json!({"progress": 7})), "7 %");
        assert_eq!(of(json!({"readyToUse": false, "error": {"message": "no room"}})), "failed: no room");
        let fast =
            json!({"metadata": {"annotations": {"croft.io/bytes-per-second": "2097152"}}, "status": {"progress": 7}});
        assert_eq!(state(&fast), "7 %, 2.0 MiB/s");
        assert_eq!(state(&Value::Null), "0 %");
    }

    #[test]
    fn a_table_for_people() {
        let volumes = json!([{"volumeSize": 1 << 20}, {"volumeSize": 1 << 20}]);
        let one = kept(&json!({"readyToUse": true, "volumeBackups": volumes, "creationTime": "2026-11-16T12:00:01Z"}));
        let text = table(&[one, kept(&json!({}))], true, true);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAMESPACE", "NAME", "MACHINE", "STATE", "SIZE", "MADE", "SCHEDULE"]);
        assert_eq!(lines[1], ["n", "a", "web", "ready", "2.0", "MiB", "2026-11-16T12:00:01Z", "n/nightly"]);
        assert_eq!(lines[2], ["n", "a", "web", "0", "%", "2026-11-16T12:00:00Z", "n/nightly"]);
    }

    #[test]
    fn what_has_no_type_is_a_backup() {
        assert_eq!(Sort::of(&json!({"spec": {}})), Sort::Backup);
        assert_eq!(Sort::of(&kept(&Value::Null)), Sort::Snapshot);
        let object = wanted(Sort::Backup, "a", "web", Some("30s"));
        assert_eq!((&object["spec"]["type"], &object["spec"]["fsFreezeDeadline"]), (&json!("backup"), &json!("30s")));
    }
}

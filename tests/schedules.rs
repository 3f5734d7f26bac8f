//! Schedules of snapshots, by the clock of the real server. What does not need a minute of it is tested with a clock that is
//! set, in the controller.

use std::path::Path;
use std::time::Duration;

use croft_e2e::machines::{
    CLAIMS, MACHINES, becomes, create, croft, croft_ok, empty, is_gone, is_true, node, status_becomes,
};
use croft_e2e::storage::{bound, claim, deleted, made, patched, volume_file};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};

const SCHEDULES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/schedulevmbackups";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
/// For the next minute, and what is made in it.
const MINUTES: Duration = Duration::from_mins(3);

async fn said(server: &Croft, args: &[&str]) -> String {
    croft_ok(server, args).await.unwrap_or_else(|err| panic!("{err:#}"))
}

async fn machine_with_a_disk(client: &Client) {
    made(client, CLAIMS, &claim("data", "harvester-longhorn", "24Mi")).await;
    bound(client, "data").await;
    let mut machine = empty("web");
    machine["spec"]["runStrategy"] = json!("Halted");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}]);
    create(client, &machine).await;
    status_becomes(client, "web", "Stopped").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_kept_every_minute_until_its_schedule_is_suspended() {
    let (server, client) = node().await;
    machine_with_a_disk(&client).await;
    let asked = |name: &'static str| {
        ["backup", "schedule", "create", name, "--vm", "web", "--cron", "* * * * *", "--retain", "3"].to_vec()
    };
    let snapshots = [asked("often"), vec!["--snapshot", "-o", "json"]].concat();
    let schedule: Value = serde_json::from_str(&said(&server, &snapshots).await).expect("JSON");
    assert_eq!(schedule["spec"]["maxFailure"], 2, "{schedule}");
    let uid = schedule["metadata"]["uid"].as_str().expect("a uid");
    // Without a target there are no backups.
    let refused = croft(&server, &asked("other")).await.expect("croft runs");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && why.contains("backup-target is not set"), "{why}");

    let is_kept = |it: &Value| it["status"]["vmbackupInfo"][0]["readyToUse"] == true;
    let seen = becomes(&client, &format!("{SCHEDULES}/often"), "of one snapshot", MINUTES, is_kept).await;
    let info = &seen["status"]["vmbackupInfo"][0];
    assert_eq!((&seen["status"]["failure"], &seen["status"]["suspended"]), (&json!(0), &json!(false)), "{seen}");
    assert_eq!(info["volumeBackupInfo"][0]["readyToUse"], true, "{seen}");
    let name = info["name"].as_str().expect("a name");
    let kept = client.get(&format!("{BACKUPS}/{name}")).await.expect("an answer").ok().expect("a snapshot");
    let time = kept["metadata"]["labels"]["harvesterhci.io/svmbackupTimestamp"].as_str().expect("a time");
    assert_eq!(name, format!("svmb-{uid}-{time}"));
    assert_eq!(kept["metadata"]["labels"]["harvesterhci.io/svmbackupUID"], uid, "{kept}");
    assert_eq!(kept["metadata"]["annotations"]["harvesterhci.io/svmbackupId"], "default/often", "{kept}");
    let listed = said(&server, &["snapshot", "list", "-o", "wide"]).await;
    assert!(listed.contains(name) && listed.contains("default/often"), "{listed}");

    // What it may delete is not restored from while it runs.
    let refused = croft(&server, &["snapshot", "restore", name, "--to", "copy"]).await.expect("croft runs");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && why.contains("is running"), "{why}");
    said(&server, &["backup", "schedule", "suspend", "often"]).await;
    let is_asleep = |it: &Value| it["status"]["suspended"] == true;
    let asleep = becomes(&client, &format!("{SCHEDULES}/often"), "suspended", MINUTES, is_asleep).await;
    assert_eq!(asleep["status"]["conditions"][0]["reason"], "Proactive Schedule Suspend", "{asleep}");
    said(&server, &["snapshot", "restore", name, "--to", "copy", "--no-start", "--wait"]).await;
    status_becomes(&client, "copy", "Stopped").await;
    said(&server, &["backup", "schedule", "resume", "often"]).await;
    let is_awake = |it: &Value| it["status"]["suspended"] == false;
    becomes(&client, &format!("{SCHEDULES}/often"), "resumed", MINUTES, is_awake).await;

    // Without the schedule its snapshots stay; without the machine they go.
    said(&server, &["backup", "schedule", "delete", "often", "--yes"]).await;
    is_gone(&client, &format!("{SCHEDULES}/often")).await;
    assert_eq!(client.get(&format!("{BACKUPS}/{name}")).await.expect("an answer").status, 200);
    deleted(&client, &format!("{MACHINES}/web")).await;
    is_gone(&client, &format!("{BACKUPS}/{name}")).await;
}

/// A backup as the schedule would have made it, at that time.
fn run_of(uid: &str, time: &str, machine: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": format!("svmb-{uid}-{time}"),
            "annotations": {"harvesterhci.io/svmbackupId": format!("default/{machine}")},
            "labels": {"harvesterhci.io/svmbackupUID": uid, "harvesterhci.io/svmbackupTimestamp": time}},
        "spec": {"type": "backup", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine}}})
}

/// In the target, of the machine.
fn described(target: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(target.join("harvester/vmbackups/default")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_beyond_retain_leaves_the_target_and_failures_suspend() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let target = json!({"type": "directory", "endpoint": format!("file://{}", dir.path().display())});
    let setting = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
    patched(&client, setting, &json!({"value": target.to_string()})).await;
    machine_with_a_disk(&client).await;
    // Its disk never comes to be.
    made(&client, CLAIMS, &claim("late", "no-such-class", "24Mi")).await;
    let mut broken = empty("broken");
    broken["spec"]["runStrategy"] = json!("Halted");
    let spec = &mut broken["spec"]["template"]["spec"];
    spec["domain"]["devices"]["disks"] = json!([{"name": "disk", "disk": {"bus": "virtio"}}]);
    spec["volumes"] = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": "late"}}]);
    create(&client, &broken).await;

    let mut uids = Vec::new();
    // Not before everything is there: never, for now.
    for (machine, cron) in [("web", "0 0 30 2 *"), ("broken", "30 0 30 2 *")] {
        let args = ["backup", "schedule", "create", machine, "--vm", machine, "--cron", cron, "--retain", "3"];
        let said = said(&server, &[&args[..], &["-o", "json"]].concat()).await;
        let schedule: Value = serde_json::from_str(&said).expect("JSON");
        uids.push(schedule["metadata"]["uid"].as_str().expect("a uid").to_owned());
    }
    let file = volume_file(&server, &client, "data").await;
    for (index, time) in ["20200101.0000", "20200101.0001"].into_iter().enumerate() {
        made(&client, BACKUPS, &run_of(&uids[1], time, "broken")).await;
        std::fs::write(&file, vec![u8::try_from(index).expect("small") + 1; 24 << 20]).expect("written");
        made(&client, BACKUPS, &run_of(&uids[0], time, "web")).await;
        let path = format!("{BACKUPS}/svmb-{}-{time}", uids[0]);
        becomes(&client, &path, "in the target", MINUTES, |it| is_true(it, "MetadataReady")).await;
    }
    let fails = |it: &Value| it["status"]["failure"] == 2;
    becomes(&client, &format!("{SCHEDULES}/broken"), "failing", MINUTES, fails).await;

    // A third and then, at its time, the fourth: the first leaves with what is its alone.
    std::fs::write(&file, vec![9; 24 << 20]).expect("written");
    made(&client, BACKUPS, &run_of(&uids[0], "20200101.0002", "web")).await;
    let third = format!("{BACKUPS}/svmb-{}-20200101.0002", uids[0]);
    becomes(&client, &third, "in the target", MINUTES, |it| is_true(it, "MetadataReady")).await;
    for machine in ["web", "broken"] {
        patched(&client, &format!("{SCHEDULES}/{machine}"), &json!({"spec": {"cron": "* * * * *"}})).await;
    }
    let (first, last) = (format!("svmb-{}-20200101.0000.cfg", uids[0]), format!("{SCHEDULES}/web"));
    let is_newest_there = |it: &Value| {
        let runs = it["status"]["vmbackupInfo"].as_array().cloned().unwrap_or_default();
        runs.len() == 3
            && runs.iter().all(|run| run["readyToUse"] == true)
            && !runs[0]["name"].as_str().unwrap_or_default().ends_with("0000")
            && !runs[2]["name"].as_str().unwrap_or_default().contains("-2020")
    };
    let kept = becomes(&client, &last, "of three backups", MINUTES, is_newest_there).await;
    eventually("the first is out of the target", async || {
        let left = described(dir.path());
        if left.len() == 3 && !left.contains(&first) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    is_gone(&client, &format!("{BACKUPS}/svmb-{}-20200101.0000", uids[0])).await;
    let name = kept["status"]["vmbackupInfo"][2]["name"].as_str().expect("a name");
    // Nobody reads while blocks are being deleted.
    eventually("it is sound", async || {
        let output = croft(&server, &["backup", "verify", name]).await.expect("croft runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    })
    .await;

    // In the same minute, the other rests.
    let is_asleep = |it: &Value| it["spec"]["suspend"] == true && it["status"]["suspended"] == true;
    let asleep = becomes(&client, &format!("{SCHEDULES}/broken"), "suspended", MINUTES, is_asleep).await;
    assert_eq!(asleep["status"]["conditions"][0]["reason"], "Reach Max Failure", "{asleep}");
    said(&server, &["backup", "schedule", "delete", "web", "--yes"]).await;
    is_gone(&client, &last).await;
    assert_eq!(described(dir.path()).len(), 3, "what it made stays");
}

const JOBS: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/recurringjobs";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";

fn job(name: &str, task: &str, groups: &Value) -> Value {
    json!({"apiVersion": "longhorn.io/v1beta2", "kind": "RecurringJob", "metadata": {"name": name},
        "spec": {"name": name, "task": task, "cron": "* * * * *", "retain": 1, "concurrency": 1, "groups": groups,
            "labels": {"team": "storage"}}})
}

/// Those of a job that are ready, by name.
async fn kept_by(client: &Client, job: &str) -> Vec<Value> {
    let all = client.get(&format!("{SNAPSHOTS}?labelSelector=RecurringJob%3D{job}")).await.expect("an answer").json();
    all["items"].as_array().into_iter().flatten().filter(|it| it["status"]["readyToUse"] == true).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_kept_by_the_jobs_that_their_claims_name() {
    let (_server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let target = json!({"type": "directory", "endpoint": format!("file://{}", dir.path().display())});
    let setting = "/apis/harvesterhci.io/v1beta1/settings/backup-target";
    patched(&client, setting, &json!({"value": target.to_string()})).await;
    for (name, label) in [("a", Some("mine")), ("b", None), ("c", Some("other")), ("d", Some("mine"))] {
        let mut wanted = claim(name, "harvester-longhorn", "24Mi");
        if let Some(job) = label {
            let of = format!("recurring-job.longhorn.io/{job}");
            wanted["metadata"]["labels"] = json!({"recurring-job.longhorn.io/source": "enabled", of: "enabled"});
        }
        made(&client, CLAIMS, &wanted).await;
        bound(&client, name).await;
    }
    // One that the job has made long ago, as if.
    let old = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "old", "labels": {"RecurringJob": "mine", "croft.io/recurring-job-time": "20200101.0000"}},
        "spec": {"source": {"persistentVolumeClaimName": "a"}}});
    made(&client, SNAPSHOTS, &old).await;
    for (task, word) in [("filesystem-trim", "fstrim"), ("snapshot-cleanup", "nothing to clean up")] {
        let refused = client.post(JOBS, &job("bad", task, &json!([]))).await.expect("an answer");
        assert!(refused.status == 422 && refused.text().contains(word), "{}", refused.text());
    }
    made(&client, JOBS, &job("mine", "snapshot", &json!([]))).await;
    made(&client, JOBS, &job("all", "backup", &json!(["default"]))).await;
    eventually("old is ready", async || {
        let ready = kept_by(&client, "mine").await;
        if ready.is_empty() { Err("not yet") } else { Ok(()) }
    })
    .await;

    let is_run = |it: &Value| {
        let (begun, done) = ("croft.io/last-scheduled-time", "croft.io/last-completed-time");
        let told = &it["metadata"]["annotations"];
        told[begun].is_string() && told[begun] == told[done]
    };
    let mine = becomes(&client, &format!("{JOBS}/mine"), "done", MINUTES, is_run).await;
    assert!(mine["status"]["executionCount"].as_i64().is_some_and(|count| count >= 1), "{mine}");
    becomes(&client, &format!("{JOBS}/all"), "done", MINUTES, is_run).await;
    is_gone(&client, &format!("{SNAPSHOTS}/old")).await;
    let of = |snapshots: &[Value]| -> Vec<String> {
        let claim = |it: &Value| it["spec"]["source"]["persistentVolumeClaimName"].as_str().map(str::to_owned);
        let mut claims: Vec<String> = snapshots.iter().filter_map(claim).collect();
        claims.sort_unstable();
        claims.dedup();
        claims
    };
    let (mine, all) = (kept_by(&client, "mine").await, kept_by(&client, "all").await);
    assert_eq!((of(&mine), of(&all)), (vec!["a".to_owned(), "d".to_owned()], vec!["b".to_owned()]));
    assert_eq!(mine[0]["metadata"]["labels"]["team"], "storage", "{}", mine[0]);
    assert_eq!(all[0]["spec"]["volumeSnapshotClassName"], "longhorn", "{}", all[0]);
    assert!(dir.path().join("backupstore/volumes").is_dir(), "it is in the target");
    for name in ["mine", "all"] {
        deleted(&client, &format!("{JOBS}/{name}")).await;
    }
}

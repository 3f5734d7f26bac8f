//! Killed at moments that a seed chooses: the server, what serves the target, and QEMU. Whatever says that it is ready is what it
//! was, byte by byte, and nothing is left over. The crate that writes the target is killed far more often by its own tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use croft_e2e::export::{Export, is_outside};
use croft_e2e::kept::{
    BACKUPS, Bucket, LONGHORN, RESTORES, Relay, SETTING, SIZE, backup, files, get, holds, is_usable, machine,
    machine_with, ready, restore, restored, set_target, write,
};
use croft_e2e::machines::{
    BOOT, CLAIMS, INSTANCES, MACHINES, becomes, create, croft_ok, is_gone, is_true, node, qemus, status_becomes,
};
use croft_e2e::seeded::Random;
use croft_e2e::storage::{claim, deleted, made, patched, run, text, volume_file};
use croft_testkit::{Client, Croft, eventually};
use serde_json::{Value, json};

/// So slow that somebody can be killed on the way.
const SPEED: &str = "12Mi";
/// Little longer than that takes.
const ON_THE_WAY: Duration = Duration::from_millis(1200);

/// A machine that does not run, and what its disk was when each of its backups was taken.
struct Stage {
    server: Croft,
    client: Client,
    random: Random,
    disk: PathBuf,
    kept: BTreeMap<String, Vec<u8>>,
    place: tempfile::TempDir,
}

impl Stage {
    async fn new(server: Croft, client: Client, mut random: Random) -> Self {
        is_usable(&client).await;
        let disk = machine_with(&server, &client, "web", &random.noise(SIZE)).await;
        let slow = format!("{LONGHORN}/settings/backup-bandwidth-limit");
        patched(&client, &slow, &json!({"value": SPEED})).await;
        let place = tempfile::tempdir().expect("a directory");
        Self { server, client, random, disk, kept: BTreeMap::new(), place }
    }

    /// Changes some of the disk, in pieces that are no whole blocks, and asks for a backup of it.
    async fn begin(&mut self, name: &str) {
        for _ in 0..4 {
            let at = self.random.below(SIZE as u64 - (2 << 20));
            let length = usize::try_from(1 + self.random.below(2 << 20)).expect("small");
            write(&self.disk, &self.random.noise(length), at);
        }
        self.kept.insert(name.to_owned(), std::fs::read(&self.disk).expect("the disk"));
        made(&self.client, BACKUPS, &backup(name, "web")).await;
    }

    async fn kill_the_server(&mut self) {
        self.random.moment(ON_THE_WAY).await;
        self.server.kill().expect("killed");
        self.server.restart().await.expect("a restart");
        self.client = self.server.client().expect("a client");
    }

    /// Whatever says that it is ready comes back from the target as it was.
    async fn what_is_ready_is_right(&self) {
        let all = get(&self.client, BACKUPS).await;
        for one in all["items"].as_array().expect("items") {
            if one["status"]["readyToUse"] != true || !is_true(one, "MetadataReady") {
                continue;
            }
            let name = one["metadata"]["name"].as_str().expect("a name");
            let copy = self.place.path().join(name);
            let copied = croft_ok(&self.server, &["backup", "cp", &format!("{name}:disk"), text(&copy)]).await;
            copied.unwrap_or_else(|err| panic!("{name}: {err:#}"));
            assert!(std::fs::read(&copy).expect("a disk") == self.kept[name], "{name} is another disk");
            std::fs::remove_file(copy).expect("removed");
        }
    }

    async fn comes_back(&self, name: &str) {
        let claims = restored(&self.client, name).await;
        let kept = &self.kept[name];
        holds(&self.server, &self.client, &claims[0], kept).await;
        deleted(&self.client, &format!("{MACHINES}/{name}")).await;
        is_gone(&self.client, &format!("{MACHINES}/{name}")).await;
        deleted(&self.client, &format!("{CLAIMS}/{}", claims[0])).await;
    }

    /// Nothing is there that nobody needs, and after the last backup has gone nothing at all.
    async fn nothing_is_left(&self, target: Option<&Path>) {
        let checked = croft_ok(&self.server, &["backup", "verify", "--all"]).await;
        checked.unwrap_or_else(|err| panic!("{err:#}"));
        if let Some(target) = target {
            eventually("the target has what is needed", async || {
                let (needed, there) = (needed(target), blocks(target));
                let locks = files(target, ".lck");
                let is_so = needed == there && locks.is_empty();
                if is_so { Ok(()) } else { Err(format!("{} of {} blocks, {locks:?}", needed.len(), there.len())) }
            })
            .await;
        }
        // Who looks at a target may have died over it, which is seldom met; what is left of that goes after a minute.
        if let Some(target) = target {
            std::fs::write(target.join("croft-check.tmp.0123456789abcdef"), "left").expect("written");
        }
        for probe in target.map(|target| files(target, "")).unwrap_or_default() {
            let is_probe = probe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("croft-check.tmp."));
            // Some are of one that lives, and are gone by now.
            if let Some(file) = is_probe.then(|| std::fs::File::options().write(true).open(&probe).ok()).flatten() {
                let modified = file.metadata().and_then(|about| about.modified()).expect("a time");
                file.set_modified(modified - Duration::from_mins(2)).expect("older");
            }
        }
        for name in self.kept.keys() {
            deleted(&self.client, &format!("{BACKUPS}/{name}")).await;
        }
        for name in self.kept.keys() {
            is_gone(&self.client, &format!("{BACKUPS}/{name}")).await;
        }
        eventually("the target and the pool have nothing of it", async || {
            let left = get(&self.client, &format!("{LONGHORN}/backups")).await;
            let mut found: Vec<_> = left["items"].as_array().expect("items").iter().map(Value::to_string).collect();
            let target = target.map(|target| files(target, "")).unwrap_or_default();
            found.extend(target.iter().map(|path| path.display().to_string()));
            found.extend(left_in_pool(&self.server, &[&self.disk]));
            if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }
}

/// The blocks that the backups in a target name.
fn needed(target: &Path) -> BTreeSet<String> {
    let configs = files(target, ".cfg").into_iter().filter(|path| path.to_string_lossy().contains("/backup_"));
    let mut needed = BTreeSet::new();
    for config in configs {
        let config: Value = serde_json::from_slice(&std::fs::read(config).unwrap_or_default()).unwrap_or_default();
        let named = config["Blocks"].as_array().into_iter().flatten();
        needed.extend(named.filter_map(|block| block["BlockChecksum"].as_str()).map(str::to_owned));
    }
    needed
}

fn blocks(target: &Path) -> BTreeSet<String> {
    let name = |path: &PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    files(target, ".blk").iter().filter_map(name).collect()
}

/// Files of the pool, but for volumes that are known.
fn left_in_pool(server: &Croft, known: &[&Path]) -> Vec<String> {
    let pool = server.data_dir().join("pool");
    let found = ["volumes", "snapshots", "tmp"].iter().flat_map(|dir| files(&pool.join(dir), ""));
    found.filter(|path| !known.contains(&path.as_path())).map(|path| path.display().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_killed_while_it_sends_and_while_it_restores() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    let mut stage = Stage::new(server, client, Random::seeded(5001)).await;
    let names: Vec<String> = (0..6).map(|number| format!("kept-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        stage.begin(name).await;
        stage.kill_the_server().await;
        stage.what_is_ready_is_right().await;
        ready(&stage.client, name).await;
        // Of the one before, which is in the target alone.
        let Some(older) = number.checked_sub(1).map(|before| names[before].clone()) else { continue };
        made(&stage.client, RESTORES, &restore(&older, &older, &older)).await;
        stage.kill_the_server().await;
        stage.what_is_ready_is_right().await;
        stage.comes_back(&older).await;
    }
    stage.nothing_is_left(Some(dir.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_of_an_export_is_killed_and_comes_back() {
    if is_outside("the_server_of_an_export_is_killed_and_comes_back") {
        return;
    }
    let mut export = Export::start().await;
    let (server, client) = node().await;
    export.set_as_target(&client).await;
    let mut stage = Stage::new(server, client, Random::seeded(5002)).await;
    for name in ["kept-0", "kept-1"] {
        stage.begin(name).await;
        stage.random.moment(ON_THE_WAY).await;
        export.kill();
        export.start_again();
        ready(&stage.client, name).await;
        stage.what_is_ready_is_right().await;
    }
    made(&stage.client, RESTORES, &restore("kept-0", "kept-0", "kept-0")).await;
    stage.random.moment(ON_THE_WAY).await;
    export.kill();
    export.start_again();
    stage.comes_back("kept-0").await;
    stage.nothing_is_left(Some(&export.path)).await;
}

/// The server of this bucket keeps it in its memory: it is cut off instead, for everybody and in the middle of what they say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_is_cut_off_and_comes_back() {
    let (server, client) = node().await;
    let bucket = Bucket::start();
    let relay = Relay::to(bucket.port()).await;
    patched(&client, SETTING, &json!({"value": bucket.target(relay.port, bucket.key())})).await;
    let mut stage = Stage::new(server, client, Random::seeded(5003)).await;
    for name in ["kept-0", "kept-1"] {
        stage.begin(name).await;
        stage.random.moment(ON_THE_WAY).await;
        relay.answers(Some(503));
        relay.answers(None);
        ready(&stage.client, name).await;
        stage.what_is_ready_is_right().await;
    }
    made(&stage.client, RESTORES, &restore("kept-0", "kept-0", "kept-0")).await;
    stage.random.moment(ON_THE_WAY).await;
    relay.answers(Some(503));
    relay.answers(None);
    stage.comes_back("kept-0").await;
    stage.nothing_is_left(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_is_killed_while_its_machine_is_kept() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    set_target(&client, dir.path()).await;
    is_usable(&client).await;
    let mut random = Random::seeded(5004);
    let slow = format!("{LONGHORN}/settings/backup-bandwidth-limit");
    patched(&client, &slow, &json!({"value": SPEED})).await;
    // A snapshot is there in milliseconds, a backup takes its time.
    let moments = [("snapshot", Duration::from_millis(60)), ("backup", ON_THE_WAY)];
    for (number, (kind, within)) in moments.into_iter().chain(moments).chain(moments).enumerate() {
        let (name, content) = (format!("vm-{number}"), random.noise(SIZE));
        made(&client, CLAIMS, &claim(&name, "harvester-longhorn", "24Mi")).await;
        write(&volume_file(&server, &client, &name).await, &content, 0);
        let mut wanted = machine(&name, &name);
        wanted["spec"]["runStrategy"] = json!("Always");
        create(&client, &wanted).await;
        status_becomes(&client, &name, "Running").await;
        let instance = get(&client, &format!("{INSTANCES}/{name}")).await;
        let qemu = qemus(&server)[instance["metadata"]["uid"].as_str().expect("a uid")];
        let mut kept = backup(&name, &name);
        kept["spec"]["type"] = json!(kind);
        made(&client, BACKUPS, &kept).await;
        random.moment(within).await;
        run("kill", &["-KILL", &qemu.to_string()]).expect("killed");

        let path = format!("{BACKUPS}/{name}");
        becomes(&client, &path, "ready", BOOT, |it| it["status"]["readyToUse"] == true).await;
        let mut wanted = restore(&name, &name, &format!("{name}-back"));
        wanted["spec"]["haltAfterRestore"] = json!(true);
        made(&client, RESTORES, &wanted).await;
        let claims = restored(&client, &name).await;
        holds(&server, &client, &claims[0], &content).await;
        let copy = dir.path().join("copy");
        if kind == "backup" {
            ready(&client, &name).await;
            let copied = croft_ok(&server, &["backup", "cp", &format!("{name}:disk"), text(&copy)]).await;
            copied.unwrap_or_else(|err| panic!("{name}: {err:#}"));
            assert!(std::fs::read(&copy).expect("a disk") == content, "{name} is another disk");
            std::fs::remove_file(copy).expect("removed");
        }
        // The machine goes on by itself, and all goes when it is to.
        status_becomes(&client, &name, "Running").await;
        for machine in [&name, &format!("{name}-back")] {
            deleted(&client, &format!("{MACHINES}/{machine}")).await;
            is_gone(&client, &format!("{MACHINES}/{machine}")).await;
        }
        if kind == "backup" {
            deleted(&client, &path).await;
        }
        is_gone(&client, &path).await;
        for claim in [&name, &claims[0]] {
            deleted(&client, &format!("{CLAIMS}/{claim}")).await;
        }
    }
    eventually("the target and the pool have nothing of it", async || {
        let mut found = left_in_pool(&server, &[]);
        found.extend(files(dir.path(), "").iter().map(|path| path.display().to_string()));
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    assert!(qemus(&server).is_empty(), "{:?}", qemus(&server));
}

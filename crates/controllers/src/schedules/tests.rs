//! The controller on the real API server, with a clock that the test sets.

use anyhow::{Result, ensure};
use croft_api::kubevirt::VirtualMachine;
use croft_apiserver::{Config, Listen, Running};
use croft_store::{Embedded, EmbeddedOptions};
use croft_testkit::eventually;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, PatchParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

struct World {
    client: Client,
    schedules: Arc<Schedules>,
    now: Arc<Mutex<Timestamp>>,
    _tasks: Tasks,
    _server: Running,
    _dir: TempDir,
}

impl World {
    /// With a machine `vm`, and a clock at five minutes past an hour that is yet to come.
    async fn start() -> Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir()?;
        let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default())?;
        let listen = vec![Listen { addr: "127.0.0.1:0".parse()?, is_required: true }];
        let config = Config { listen, ..Config::new(dir.path().to_owned(), store) };
        let server = croft_apiserver::start(config).await?;
        let client = Client::new(server.local(), "default");
        let start = Timestamp::from_second((Timestamp::now().as_second() / 3600 + 2) * 3600 + 300)?;
        let now = Arc::new(Mutex::new(start));
        let clock = Arc::clone(&now);
        let (events, told) = Events::channel(client.clone(), "test");
        let (schedules, received) =
            Schedules::new(client.clone(), Cache::default(), events, Arc::new(move || *clock.lock()));
        let mut tasks = Tasks::default();
        tasks.spawn(told);
        schedules.follow(&mut tasks);
        let (told, watching) = (Arc::clone(&schedules), client.clone());
        tasks.spawn(async move {
            let changes = told.backups.follow(watching, Source::of::<VirtualMachineBackup>());
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                told.backup_changed(&change).await;
            }
        });
        let worker = Arc::clone(&schedules);
        tasks.spawn(async move { worker.work(received, CancellationToken::new()).await });
        let world = Self { client, schedules, now, _tasks: tasks, _server: server, _dir: dir };
        world.create_machine().await?;
        Ok(world)
    }

    async fn create_machine(&self) -> Result<()> {
        let machines: Api<VirtualMachine> = Api::default_namespaced(self.client.clone());
        let machine = json!({"metadata": {"name": "vm"}, "spec": {"runStrategy": "Halted",
            "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}}});
        machines.create(&PostParams::default(), &serde_json::from_value(machine)?).await?;
        Ok(())
    }

    fn schedules(&self) -> Api<ScheduleVMBackup> {
        Api::default_namespaced(self.client.clone())
    }

    fn backups(&self) -> Api<VirtualMachineBackup> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create(&self, cron: &str) -> Result<ScheduleVMBackup> {
        let source = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"});
        let spec = json!({"cron": cron, "retain": 3, "maxFailure": 2,
            "vmbackup": {"type": "snapshot", "source": source}});
        let schedule = serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec}))?;
        let made = self.schedules().create(&PostParams::default(), &schedule).await?;
        self.becomes("seen", |schedule| schedule.status.is_some()).await;
        Ok(made)
    }

    /// Minutes from now; the next look is as the ticker does it.
    async fn pass(&self, minutes: i64) {
        let now = {
            let mut now = self.now.lock();
            *now += SignedDuration::from_mins(minutes);
            *now
        };
        self.schedules.look(now, minutes != 1).await;
    }

    async fn becomes(&self, what: &str, is_it: impl Fn(&ScheduleVMBackup) -> bool) -> ScheduleVMBackup {
        eventually(&format!("the schedule is {what}"), async || {
            let schedule = self.schedules().get("s").await?;
            ensure!(is_it(&schedule), "{schedule:?}");
            anyhow::Ok(schedule)
        })
        .await
    }

    /// The last of so many.
    async fn made(&self, count: usize) -> VirtualMachineBackup {
        self.made_without(count, &[]).await
    }

    /// The last of so many, once others are gone.
    async fn made_without(&self, count: usize, others: &[String]) -> VirtualMachineBackup {
        let is_there = |it: &ScheduleVMBackup| {
            let backups = it.status.as_ref().map(|status| status.backups.as_slice()).unwrap_or_default();
            backups.len() == count && !backups.iter().any(|one| others.contains(&one.name))
        };
        let schedule = self.becomes(&format!("of {count} backups"), is_there).await;
        let name = schedule.status.unwrap_or_default().backups.pop().unwrap_or_default().name;
        self.backups().get(&name).await.expect("the last backup")
    }

    /// What the node would say of it.
    async fn end(&self, backup: &VirtualMachineBackup, status: Value) -> Result<()> {
        let change = Patch::Merge(json!({"status": status}));
        self.backups().patch(&backup.name_any(), &PatchParams::default(), &change).await?;
        Ok(())
    }

    async fn told(&self) -> Result<Vec<String>> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let told = events.list(&ListParams::default()).await?;
        Ok(told.items.into_iter().filter_map(|event| event.reason).collect())
    }

    async fn is_told(&self, reason: &str) {
        eventually(&format!("{reason} is told"), async || {
            let reasons = self.told().await?;
            ensure!(reasons.iter().any(|one| one == reason), "{reasons:?}");
            anyhow::Ok(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_come_and_go_with_the_clock() -> Result<()> {
    let world = World::start().await?;
    let schedule = world.create("*/10 * * * *").await?;
    world.pass(5).await;
    let first = world.made(1).await;
    let uid = schedule.metadata.uid.unwrap_or_default();
    let time = world.now.lock().strftime("%Y%m%d.%H%M").to_string();
    assert_eq!(first.name_any(), format!("svmb-{uid}-{time}"));
    assert_eq!(first.annotations()[SCHEDULE_ANNOTATION], "default/s");
    assert_eq!(first.spec.source.name, "vm");

    // It goes on for longer than a minute: the next one is left out.
    world.pass(10).await;
    world.is_told("WaitingForBackup").await;
    world.pass(1).await;
    world.end(&first, json!({"readyToUse": true})).await?;
    let is_ready = |it: &ScheduleVMBackup| {
        it.status.as_ref().is_some_and(|status| status.backups.iter().all(|one| one.ready_to_use == Some(true)))
    };
    world.becomes("ready", is_ready).await;
    world.is_told("MissedSchedule").await;
    world.pass(9).await;
    for count in 2..=3 {
        let next = world.made(count).await;
        world.end(&next, json!({"readyToUse": true})).await?;
        world.pass(10).await;
    }
    // The oldest goes when the fourth is there.
    let fourth = world.made(4).await;
    world.end(&fourth, json!({"readyToUse": true})).await?;
    assert_eq!(world.made(3).await.name_any(), fourth.name_any());
    assert!(world.backups().get_opt(&first.name_any()).await?.is_none());

    // Two fail, and it rests; a suspended one makes nothing.
    let mut failed = Vec::new();
    for count in 4..=5 {
        world.pass(10).await;
        let next = world.made(count).await;
        failed.push(next.name_any());
        world.end(&next, json!({"readyToUse": false, "error": {"message": "no room"}})).await?;
    }
    world.becomes("failing", |it| it.status.as_ref().is_some_and(|status| status.failure == 2)).await;
    world.pass(10).await;
    let suspended = world.becomes("suspended", |it| it.spec.suspend).await;
    let status = suspended.status.unwrap_or_default();
    assert!(status.suspended && status.backups.len() == 5, "{status:?}");
    assert_eq!(status.conditions[0].reason.as_deref(), Some("Reach Max Failure"));

    // Resumed, without what failed.
    let change = Patch::Merge(json!({"spec": {"suspend": false}}));
    world.schedules().patch("s", &PatchParams::default(), &change).await?;
    let is_awake = |it: &ScheduleVMBackup| it.status.as_ref().is_some_and(|status| !status.suspended);
    let resumed = world.becomes("awake", is_awake).await;
    assert_eq!(resumed.status.unwrap_or_default().conditions[0].status, "False");
    // In the minute that it was resumed in, the backup is made after all.
    assert_eq!(world.made_without(4, &failed).await.metadata.deletion_timestamp, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_gone_is_told_and_backups_outlive_their_schedule() -> Result<()> {
    let world = World::start().await?;
    world.create("6-8 * * * *").await?;
    world.pass(1).await;
    let kept = world.made(1).await;
    world.end(&kept, json!({"readyToUse": true})).await?;
    let machines: Api<VirtualMachine> = Api::default_namespaced(world.client.clone());
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    machines.delete("vm", &DeleteParams::default()).await?;
    let _ = machines.patch("vm", &PatchParams::default(), &none).await;
    eventually("the machine is gone", async || {
        ensure!(machines.get_opt("vm").await?.is_none(), "there");
        anyhow::Ok(())
    })
    .await;
    world.pass(1).await;
    world.is_told("BackupRefused").await;
    // There is one again before the minute is over.
    world.create_machine().await?;
    world.made(2).await;
    world.schedules().delete("s", &DeleteParams::default()).await?;
    world.pass(1).await;
    assert!(world.backups().get_opt(&kept.name_any()).await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_cron_would_have_fired_at_is_not_missed() -> Result<()> {
    let world = World::start().await?;
    world.create("0 0 30 2 *").await?;
    world.pass(20).await;
    // From never to every ten minutes: two of these times have passed.
    let change = Patch::Merge(json!({"spec": {"cron": "*/10 * * * *"}}));
    world.schedules().patch("s", &PatchParams::default(), &change).await?;
    let is_followed = |it: &ScheduleVMBackup| it.annotations().values().any(|value| value.ends_with("*/10 * * * *"));
    world.becomes("seen again", is_followed).await;
    world.pass(5).await;
    let first = world.made(1).await;
    world.end(&first, json!({"readyToUse": true})).await?;
    let is_ready = |it: &ScheduleVMBackup| {
        it.status.as_ref().is_some_and(|status| status.backups.iter().all(|one| one.ready_to_use == Some(true)))
    };
    world.becomes("ready", is_ready).await;
    // One that was missed is told; were it the other, there would be two.
    world.pass(20).await;
    world.is_told("MissedSchedule").await;
    let missed = world.told().await?.into_iter().filter(|reason| reason == "MissedSchedule").count();
    assert_eq!(missed, 1);
    Ok(())
}

//! One client that behaves well, among two hundred that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use croft_testkit::{Client, Croft, Protocol, StoreKind};
use serde_json::json;

use crate::Size;
use crate::load::{Creates, MAPS, Writer as _};
use crate::report::{Report, Row, ms, percentile};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const ABUSERS: usize = 200;
/// Each account has several of those clients.
const ABUSIVE_ACCOUNTS: usize = 20;
/// What they list, each as fast as it is answered.
const LISTED: usize = 500;
const GETS: usize = 2000;
/// A person or a controller, not a benchmark: between two requests it does something else.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start(StoreKind::Embedded).await?;
    let admin = croft.client_over(Protocol::Http2)?;
    for number in 0..LISTED {
        Creates(admin.clone()).write(&format!("listed-{number:03}"), 1 << 10).await?;
    }
    let good = account(&croft, &admin, "good").await?;
    let gets = size.of(GETS);
    let mut quiet = alone(good.clone(), gets)?;

    let answered = Arc::new(AtomicUsize::new(0));
    let mut abusers = tokio::task::JoinSet::new();
    for number in 0..ABUSIVE_ACCOUNTS {
        let name = format!("abuser-{number}");
        let first = account(&croft, &admin, &name).await?;
        for _ in 0..ABUSERS / ABUSIVE_ACCOUNTS {
            let (client, answered) = (first.clone(), Arc::clone(&answered));
            abusers.spawn(async move {
                loop {
                    // Refused or not, it asks again at once.
                    if client.get(MAPS).await.is_ok() {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }
    while answered.load(Ordering::Relaxed) < ABUSERS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = answered.load(Ordering::Relaxed);
    let mut noisy = tokio::task::spawn_blocking(move || alone(good, gets)).await??;
    let lists = answered.load(Ordering::Relaxed) - before;
    abusers.shutdown().await;
    ensure!(lists > 0, "nobody was noisy");

    let (quiet, noisy) = (percentile(&mut quiet, 0.99), percentile(&mut noisy, 0.99));
    let times = noisy.as_secs_f64() / quiet.as_secs_f64();
    report.row(&Row {
        what: &format!("GET p99 of one client while {ABUSERS} others list {LISTED} objects as fast as they can"),
        croft: format!("{} ({lists} lists meanwhile)", ms(noisy)),
        rival: format!("{} (quiet)", ms(quiet)),
        ratio: Some(1.0 / times),
        goal: "5 x the time".into(),
        met: times < 5.0,
    });
    Ok(())
}

/// On a thread of its own, so that it is not kept waiting by the noise that this process makes.
fn alone(client: Client, gets: usize) -> Result<Vec<Duration>> {
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let mut samples = Vec::with_capacity(gets);
            for _ in 0..gets {
                let start = Instant::now();
                client.get(&format!("{MAPS}/listed-007")).await?.ok()?;
                samples.push(start.elapsed());
                tokio::time::sleep(PAUSE).await;
            }
            Ok(samples)
        })
    };
    std::thread::spawn(work).join().ok().context("the client's thread ended badly")?
}

async fn account(croft: &Croft, admin: &Client, name: &str) -> Result<Client> {
    admin.post(ACCOUNTS, &json!({"metadata": {"name": name}})).await?.ok()?;
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}]});
    admin.post(BINDINGS, &binding).await?.ok()?;
    let token = admin.post(&format!("{ACCOUNTS}/{name}/token"), &json!({"spec": {}})).await?.ok()?;
    croft.bearer(token["status"]["token"].as_str().context("a token")?)
}

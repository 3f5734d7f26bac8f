//! One client that behaves well, among two hundred that do not.

pub(crate) mod crowd;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use croft_testkit::{Client, Croft, Protocol, StoreKind, eventually};
use serde_json::json;

use crate::Size;
use crate::load::{Creates, MAPS, Writer as _};
use crate::report::{Report, Row, ms, percentile};
use crate::steady;
use crowd::Crowd;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const ABUSERS: usize = 200;
/// Each account has several of those clients.
const ABUSIVE_ACCOUNTS: usize = 20;
/// What they list, each as fast as it is answered.
const LISTED: usize = 500;
/// What kubectl asks for: the server makes a row of each object, which is more work for it than for the client. A plain list is put
/// together of bytes that are there.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The share of a core that the server must have used.
const BUSY: f64 = 0.5;
const GETS: usize = 2000;
/// Fewer will do where they take long, as without optimisation.
const LEAST: usize = 20;
const LONGEST: Duration = Duration::from_secs(30);
/// A person or a controller, not a benchmark: between two requests it does something else.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start(StoreKind::Embedded).await?;
    let admin = croft.client_over(Protocol::Http2)?;
    for number in 0..LISTED {
        Creates(admin.clone()).write(&format!("listed-{number:03}"), 1 << 10).await?;
    }
    let good = account(&admin, "good").await?;
    let mut tokens = Vec::new();
    for number in 0..ABUSIVE_ACCOUNTS {
        tokens.push(account(&admin, &format!("abuser-{number}")).await?);
    }
    let gets = size.of(GETS);
    let well_behaved = async || {
        let path = format!("{MAPS}/listed-007");
        let start = Instant::now();
        let goes_on = move |so_far| so_far < gets && (so_far < LEAST || start.elapsed() < LONGEST);
        steady::gets(croft.bearer(&good)?, path, PAUSE, goes_on).await
    };
    let mut quiet = well_behaved().await?;
    let quiet = percentile(&mut quiet, 0.99);

    for (what, accept) in [("lists", "application/json"), ("tables", TABLE)] {
        let mut crowd = Crowd::start(&croft, &tokens, ABUSERS / ABUSIVE_ACCOUNTS, MAPS, accept).await?;
        let enough = u64::try_from(ABUSERS)?;
        eventually("everybody is there", async || {
            let answers = crowd.answers().await?;
            ensure!(answers.served + answers.refused >= enough, "{answers:?}");
            Ok(())
        })
        .await;
        let (before, waited, worked) = (crowd.answers().await?, waits(&admin).await?, croft.process().cpu_time()?);
        let start = Instant::now();
        let mut noisy = well_behaved().await?;
        let took = start.elapsed().as_secs_f64();
        let share = croft.process().cpu_time()?.saturating_sub(worked).as_secs_f64() / took;
        let (after, waited) = (crowd.answers().await?, (waits(&admin).await? - waited) / took);
        drop(crowd);

        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        let rate = |before: u64, after: u64| (after - before) as f64 / took;
        let (served, refused) = (rate(before.served, after.served), rate(before.refused, after.refused));
        let (samples, noisy) = (noisy.len(), percentile(&mut noisy, 0.99));
        let times = noisy.as_secs_f64() / quiet.as_secs_f64();
        report.row(&Row {
            what: &format!(
                "GET p99 of one client while {ABUSERS} others ask for {what} of {LISTED} objects as fast as they can (rival: quiet)"
            ),
            croft: format!(
                "{} (of {samples}; {served:.0} served, {waited:.0} kept waiting, {refused:.0} refused a second, the server at {:.0} % of a core)",
                ms(noisy),
                share * 100.0
            ),
            rival: ms(quiet),
            ratio: Some(1.0 / times),
            goal: "5 x the time, the server busy".into(),
            // A server that has little to do proves nothing.
            met: times < 5.0 && share > BUSY,
        });
    }
    Ok(())
}

/// How often a request had to wait for its turn so far, as the server tells it.
async fn waits(admin: &Client) -> Result<f64> {
    let figures = admin.get("/metrics").await?.text();
    let name = "apiserver_flowcontrol_request_wait_duration_seconds_count{";
    let numbers = figures.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
    Ok(numbers.filter_map(|number| number.parse::<f64>().ok()).fold(0.0, |sum, number| sum + number))
}

/// A token of a service account that may read and write.
async fn account(admin: &Client, name: &str) -> Result<String> {
    admin.post(ACCOUNTS, &json!({"metadata": {"name": name}})).await?.ok()?;
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}]});
    admin.post(BINDINGS, &binding).await?.ok()?;
    let token = admin.post(&format!("{ACCOUNTS}/{name}/token"), &json!({"spec": {}})).await?.ok()?;
    Ok(token["status"]["token"].as_str().context("a token")?.to_owned())
}

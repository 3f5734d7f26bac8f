//! A webhook that is asked about every object, beside what cannot be had cheaper: its own round trip, and the create.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_e2e::webhook_server::{Reply, WebhookServer};
use croft_testkit::{Client, Croft, Protocol, StoreKind};
use serde_json::json;

use crate::Size;
use crate::load::{Creates, Writer as _};
use crate::report::{Report, Row, median, ms, ratio};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const PATH: &str = "/allow";
const OBJECT_BYTES: usize = 2048;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let hooks = WebhookServer::start().await?;
    hooks.on(PATH, |_| Reply::allow());
    let asking = Croft::start(StoreKind::Embedded).await?;
    let silent = Croft::start(StoreKind::Embedded).await?;
    let [ours, theirs] = [asking.client_over(Protocol::Http2)?, silent.client_over(Protocol::Http2)?];
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let hook = json!({"name": "allow.example.com", "clientConfig": hooks.client_config(PATH), "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    ours.post(CONFIGURATIONS, &json!({"metadata": {"name": "allow"}, "webhooks": [hook]})).await?.ok()?;

    let [ours, theirs] = [Creates(ours), Creates(theirs)];
    for number in 0..20 {
        for writer in [&ours, &theirs] {
            writer.write(&format!("warm-{number}"), OBJECT_BYTES).await?;
        }
    }
    // The very bytes that Croft sends, but for names.
    let request = hooks.asked(PATH).pop().context("the webhook was not asked")?;
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let authority = String::from_utf8(STANDARD.decode(hooks.ca_bundle())?)?;
    let bare = Client::trusting(hooks.url("").trim_end_matches('/'), &authority, Protocol::Http1)?;
    bare.post(PATH, &review).await?.ok()?;
    hooks.forget();

    let count = size.of(1000);
    let (mut asked, mut round_trips, mut unasked) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..count {
        let name = format!("single-{number:06}");
        let start = Instant::now();
        ours.write(&name, OBJECT_BYTES).await?;
        asked.push(start.elapsed());
        let start = Instant::now();
        bare.post(PATH, &review).await?.ok()?;
        round_trips.push(start.elapsed());
        let start = Instant::now();
        theirs.write(&name, OBJECT_BYTES).await?;
        unasked.push(start.elapsed());
    }
    // Half of them were ours; a controller may have written something besides.
    ensure!(hooks.paths().len() >= 2 * count, "the webhook was not asked each time");
    let (asked, round_trip, unasked) = (median(&mut asked), median(&mut round_trips), median(&mut unasked));
    let better = ratio(round_trip + unasked, asked);
    report.row(&Row {
        what: "create with a webhook, p50 (rival: a bare POST to the webhook and a create without)",
        croft: ms(asked),
        rival: format!("{} + {}", ms(round_trip), ms(unasked)),
        ratio: Some(better),
        goal: "1.25 x the time".into(),
        met: better * 1.25 >= 1.0,
    });
    Ok(())
}

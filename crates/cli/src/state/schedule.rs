//! `croft state schedule`: how saving the state by itself goes.

use std::fmt::Write as _;

use croft_api::state_schedule::{ANNOTATION, LEASE, NAMESPACE, StateSchedule};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::ClientArgs;
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, print};

pub(super) async fn run(client: &ClientArgs, output: &OutputArgs) -> Result<(), Failure> {
    let client = client.connect().await?;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}");
    let lease = client.find(&path).await?.unwrap_or_default();
    let told = lease["metadata"]["annotations"][ANNOTATION].as_str();
    let schedule: Option<StateSchedule> = told.map(serde_json::from_str).transpose()?;
    let text = match output.output {
        Format::Table | Format::Wide => words(schedule.as_ref(), Timestamp::now()),
        format => output::document(format, &document(schedule.as_ref())?)?,
    };
    print(&text)
}

fn document(schedule: Option<&StateSchedule>) -> anyhow::Result<Value> {
    let Some(schedule) = schedule else { return Ok(json!({})) };
    let mut document = serde_json::to_value(schedule)?;
    document["next"] = serde_json::to_value(schedule.next())?;
    Ok(document)
}

fn words(schedule: Option<&StateSchedule>, now: Timestamp) -> String {
    let Some(schedule) = schedule else {
        return "the state is not saved on a schedule: start the server with --state-schedule\n".to_owned();
    };
    let target = if schedule.target.is_empty() { "the backup target" } else { &schedule.target };
    let mut told =
        format!("schedule      {}\ntarget        {target}\nkeep          {}\n", schedule.cron, schedule.keep);
    let next = match schedule.next() {
        None => "never".to_owned(),
        Some(next) if next < now => format!("{next:.0}, which is past: no server follows it, or one is at it"),
        Some(next) => format!("{next:.0}"),
    };
    // Writing to a string does not fail.
    let _ = writeln!(told, "next          {next}");
    let _ = match &schedule.last_success {
        Some(saved) => writeln!(
            told,
            "last success  {:.0}: {}, {}, {} objects",
            saved.time,
            saved.name,
            output::bytes(saved.size),
            saved.objects
        ),
        None => writeln!(told, "last success  none yet"),
    };
    if let Some(failed) = &schedule.last_error {
        let since = if schedule.failures_in_a_row == 0 { ", mended since" } else { "" };
        let _ = writeln!(told, "last error    {:.0}{since}: {}", failed.time, failed.message);
        let _ = writeln!(told, "failures      {}, {} in a row", schedule.failures, schedule.failures_in_a_row);
    }
    told
}

#[cfg(test)]
mod tests {
    use croft_api::state_schedule::SavedState;

    use super::*;

    #[test]
    fn it_is_told_in_words() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(words(None, Timestamp::UNIX_EPOCH).contains("--state-schedule"));
        let mut schedule = StateSchedule::default();
        schedule.follow("@daily", "", 7, at("2026-01-01T05:00:00Z"));
        let told = words(Some(&schedule), at("2026-01-01T06:00:00Z"));
        assert!(told.contains("next          2026-01-02T00:00:00Z\n") && told.contains("none yet"), "{told}");
        schedule.failed(at("2026-01-02T00:00:00Z"), "no room".to_owned());
        let name = "20260102t000000z".to_owned();
        schedule.succeeded(SavedState { time: at("2026-01-02T00:01:00Z"), name, size: 2048, objects: 12 });
        let told = words(Some(&schedule), at("2026-01-03T06:00:00Z"));
        assert!(told.contains("which is past") && told.contains("mended since: no room"), "{told}");
        assert!(told.contains("20260102t000000z, 2.0 KiB, 12 objects"), "{told}");
    }
}

//! What is done to a running machine at once: pause, freeze, reset.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use croft_qemu::qga::{Agent, AgentError, Shutdown};
use croft_qemu::qmp::QmpError;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::answer::Failure;
use super::route::Action;
use crate::guest::Guest;

/// Options are a few words.
const MAX_BODY: usize = 64 << 10;

pub(super) async fn run(guest: &Arc<Guest>, action: Action, body: Incoming, thaws: &Thaws) -> Result<(), Failure> {
    match action {
        Action::Pause => pause(guest).await,
        Action::Unpause => unpause(guest).await,
        Action::Freeze => freeze(guest, options(body).await?, thaws).await,
        Action::Unfreeze => {
            thaws.forget(&guest.uid);
            agent(guest)?.thaw().await.map_err(|error| of_agent(guest, &error))?;
            guest.learn(|facts| facts.is_frozen = false);
            Ok(())
        }
        Action::Reset => guest.qmp.system_reset().await.map_err(|error| of_qemu(guest, &error)),
        Action::SoftReboot => soft_reboot(guest).await,
    }
}

/// Whoever holds the guest still at this moment is done in a moment.
async fn turn(guest: &Guest) -> Option<tokio::sync::MutexGuard<'_, ()>> {
    match &guest.machine {
        Some(machine) => Some(machine.take_turn().await),
        None => None,
    }
}

async fn pause(guest: &Guest) -> Result<(), Failure> {
    let _turn = turn(guest).await;
    let status = guest.qmp.status().await.map_err(|error| of_qemu(guest, &error))?;
    if !status.running {
        return Err(Failure::conflict(&guest.name, "VMI is already paused"));
    }
    guest.qmp.stop().await.map_err(|error| of_qemu(guest, &error))
}

async fn unpause(guest: &Guest) -> Result<(), Failure> {
    let _turn = turn(guest).await;
    let status = guest.qmp.status().await.map_err(|error| of_qemu(guest, &error))?;
    if status.running {
        return Err(Failure::conflict(&guest.name, "VMI is not paused"));
    }
    guest.qmp.cont().await.map_err(|error| of_qemu(guest, &error))
}

/// A guest without an agent still has a power button.
async fn soft_reboot(guest: &Guest) -> Result<(), Failure> {
    let status = guest.qmp.status().await.map_err(|error| of_qemu(guest, &error))?;
    if !status.running {
        return Err(Failure::conflict(&guest.name, "VMI is paused"));
    }
    if guest.facts().borrow().is_agent_connected
        && let Some(agent) = &guest.agent
    {
        return agent.shutdown(Shutdown::Reboot).await.map_err(|error| of_agent(guest, &error));
    }
    guest.life.press_power_button_to_reboot().await.map_err(|error| of_qemu(guest, &error))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FreezeOptions {
    /// As Go writes durations.
    unfreeze_timeout: Option<String>,
}

async fn options(body: Incoming) -> Result<FreezeOptions, Failure> {
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| Failure::bad_request(error.to_string()))?;
    let body = body.to_bytes();
    if body.is_empty() {
        return Ok(FreezeOptions::default());
    }
    serde_json::from_slice(&body)
        .map_err(|error| Failure::bad_request(format!("Can not unmarshal Request body to struct, error: {error}")))
}

async fn freeze(guest: &Arc<Guest>, options: FreezeOptions, thaws: &Thaws) -> Result<(), Failure> {
    let timeout = match options.unfreeze_timeout.as_deref() {
        None | Some("" | "0s" | "0") => None,
        Some(text) => Some(go_duration(text).ok_or_else(|| {
            Failure::bad_request(format!("unfreezeTimeout: {text:?} is not a duration such as 5m0s"))
        })?),
    };
    let status = guest.qmp.status().await.map_err(|error| of_qemu(guest, &error))?;
    if !status.running {
        return Err(Failure::conflict(&guest.name, "VMI is paused"));
    }
    let agent = agent(guest)?;
    if let Err(error) = agent.freeze().await {
        // It may have frozen all the same, without our hearing of it.
        if matches!(error, AgentError::Timeout { .. } | AgentError::Disconnected) {
            let _ = agent.thaw().await;
        }
        return Err(of_agent(guest, &error));
    }
    guest.learn(|facts| facts.is_frozen = true);
    if let Some(timeout) = timeout {
        thaws.plan(guest, timeout);
    }
    Ok(())
}

fn agent(guest: &Guest) -> Result<&Agent, Failure> {
    guest.agent.as_deref().ok_or_else(|| no_agent(guest))
}

pub(super) fn no_agent(guest: &Guest) -> Failure {
    Failure::conflict(&guest.name, "VMI does not have guest agent connected")
}

pub(super) fn of_agent(guest: &Guest, error: &AgentError) -> Failure {
    match error {
        AgentError::Absent | AgentError::Connect { .. } | AgentError::Disconnected => no_agent(guest),
        AgentError::Timeout { .. } => Failure::new(StatusCode::GATEWAY_TIMEOUT, error.to_string()),
        _ => Failure::internal(error.to_string()),
    }
}

pub(super) fn of_qemu(guest: &Guest, error: &QmpError) -> Failure {
    match error {
        QmpError::Disconnected => Failure::conflict(&guest.name, "VMI is not running"),
        QmpError::Timeout { .. } => Failure::new(StatusCode::GATEWAY_TIMEOUT, error.to_string()),
        _ => Failure::internal(error.to_string()),
    }
}

/// Guests that are thawed if nobody else does it in time: a frozen guest hangs.
#[derive(Debug, Default)]
pub(super) struct Thaws(Mutex<BTreeMap<String, DropGuard>>);

impl Thaws {
    fn plan(&self, guest: &Arc<Guest>, after: Duration) {
        let planned = CancellationToken::new();
        let running = planned.clone();
        let guest = Arc::clone(guest);
        let uid = guest.uid.clone();
        tokio::spawn(async move {
            if running.run_until_cancelled(tokio::time::sleep(after)).await.is_none() {
                return;
            }
            tracing::warn!(namespace = guest.namespace, name = guest.name, "nobody has thawed the guest in time");
            if let Some(agent) = &guest.agent
                && agent.thaw().await.is_ok()
            {
                guest.learn(|facts| facts.is_frozen = false);
            }
        });
        // The one before is off: its guard is dropped.
        self.0.lock().insert(uid, planned.drop_guard());
    }

    fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

/// `1h30m`, `5m0s`, `300ms`, `1.5s`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(value.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = after;
    }
    Some(total).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, expected) in [
            ("5m0s", Some(Duration::from_mins(5))),
            ("1h30m", Some(Duration::from_mins(90))),
            ("300ms", Some(Duration::from_millis(300))),
            ("1.5s", Some(Duration::from_millis(1500))),
            ("", None),
            ("5", None),
            ("m", None),
            ("-5s", None),
            ("5x", None),
            ("1e9s", None),
        ] {
            assert_eq!(go_duration(text), expected, "{text}");
        }
    }
}

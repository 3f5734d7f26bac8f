//! Follows the agent inside one guest: whether it is there, and what it says.
//!
//! QEMU tells when the guest opens or closes the agent's channel, so a guest without an agent costs nothing. One with an
//! agent is asked at once, soon again (addresses come a little later than the agent), and then ever more rarely.

use std::sync::Arc;
use std::time::Duration;

use croft_qemu::qga::answers::FreezeStatus;
use croft_qemu::qga::{Agent, AgentError};
use croft_qemu::qmp::{Event, EventError, Events, Qmp, QmpError};
use serde::Deserialize;
use serde_json::json;

use super::credentials::Credentials;
use super::{Guest, answers, support};

/// The channel's name in QEMU, and its device's.
const CHANNEL: &str = "agent";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
/// An agent that has not answered this many times in a row is taken for gone.
const MISSES: u32 = 2;

/// Runs until the machine ends. Credentials are put into the guest whenever its agent comes.
pub(super) async fn follow(guest: Arc<Guest>, mut credentials: Credentials) {
    let Some(agent) = &guest.agent else { return };
    loop {
        // Before asking, so that nothing that happens in between is missed.
        let mut events = guest.qmp.subscribe();
        match is_open(&guest.qmp).await {
            Ok(true) => {
                let closed = tokio::select! {
                    closed = closing(&mut events) => closed,
                    () = poll(&guest, agent, &mut credentials) => continue,
                };
                forget(&guest);
                credentials.forget();
                if closed.is_err() {
                    return;
                }
            }
            Ok(false) => {
                forget(&guest);
                if opening(&mut events).await.is_err() {
                    return;
                }
            }
            Err(QmpError::Disconnected) => return,
            Err(error) => {
                tracing::debug!(%error, name = guest.name, "QEMU does not tell of the agent's channel");
                tokio::time::sleep(LONGEST_PAUSE).await;
            }
        }
    }
}

fn forget(guest: &Guest) {
    guest.learn(|facts| {
        facts.is_known = true;
        facts.is_agent_connected = false;
        facts.interfaces.clear();
        facts.os = None;
    });
}

/// Asks again and again.
async fn poll(guest: &Guest, agent: &Agent, credentials: &mut Credentials) {
    let mut pause = FIRST_PAUSE;
    let mut misses = 0;
    loop {
        match ask(guest, agent).await {
            Ok(()) => {
                misses = 0;
                let outcome = credentials.apply(agent).await;
                guest.learn(|facts| facts.credentials = outcome);
            }
            Err(error) => {
                misses += 1;
                tracing::debug!(%error, name = guest.name, "the guest's agent did not answer");
                if misses >= MISSES {
                    forget(guest);
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = credentials.changed() => {}
        }
    }
}

/// An agent that refuses one question may answer the next; one that is silent is asked no more this time.
async fn ask(guest: &Guest, agent: &Agent) -> Result<(), AgentError> {
    let interfaces = known(agent.network_interfaces().await)?;
    let os = known(agent.os_info().await)?;
    let freeze = known(agent.freeze_status().await)?;
    let commands = known(answers::commands(agent).await)?;
    let lack = commands.and_then(|commands| support::lack(&commands, &guest.machine.as_ref()?.object().spec));
    guest.learn(|facts| {
        facts.is_known = true;
        facts.is_agent_connected = true;
        facts.agent_lack = lack;
        facts.interfaces = interfaces.unwrap_or_default();
        facts.os = os;
        facts.is_frozen = freeze == Some(FreezeStatus::Frozen);
    });
    Ok(())
}

fn known<T>(answer: Result<T, AgentError>) -> Result<Option<T>, AgentError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(AgentError::Command { .. } | AgentError::Answer { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether somebody in the guest has the channel open.
async fn is_open(qmp: &Qmp) -> Result<bool, QmpError> {
    #[derive(Deserialize)]
    struct Channel {
        label: String,
        #[serde(rename = "frontend-open", default)]
        is_open: bool,
    }
    let channels: Vec<Channel> = qmp.execute("query-chardev", json!({})).await?;
    Ok(channels.iter().any(|channel| channel.label == CHANNEL && channel.is_open))
}

async fn opening(events: &mut Events) -> Result<(), EventError> {
    change(events, true).await
}

async fn closing(events: &mut Events) -> Result<(), EventError> {
    change(events, false).await
}

/// Waits until the channel is as wanted, or until that is no longer certain.
async fn change(events: &mut Events, is_open: bool) -> Result<(), EventError> {
    let is_it =
        |event: &Event| event.name == "VSERPORT_CHANGE" && event.data["id"] == CHANNEL && event.data["open"] == is_open;
    loop {
        match events.next().await {
            Ok(event) if is_it(&event) => return Ok(()),
            Err(EventError::Lagged(_)) => return Ok(()),
            Err(EventError::Disconnected) => return Err(EventError::Disconnected),
            Ok(_) => {}
        }
    }
}

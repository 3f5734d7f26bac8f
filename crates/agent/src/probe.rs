//! Readiness and liveness of a guest, asked for again and again as its spec says.
//!
//! A guest with a readiness probe is ready when the probe says so. One whose liveness probe fails is given up, and its run
//! strategy decides what comes next, as with KubeVirt.

mod http;

use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::Probe;
use croft_qemu::qga::{Agent, Exec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::guest::{Guest, Readiness};
use crate::server::{Reach, Transport};

/// Kubernetes' own choices.
const TIMEOUT: u64 = 1;
const PERIOD: u64 = 10;
const SUCCESSES: u64 = 1;
const FAILURES: u64 = 3;
/// How often a command in the guest is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Asks for readiness until the machine ends.
pub(crate) async fn readiness(guest: Arc<Guest>, probe: Probe, reach: Arc<dyn Reach>) {
    guest.learn(|facts| {
        facts.readiness = Some(Readiness::NotReady("the readiness probe has not answered yet".to_owned()));
    });
    let schedule = Schedule::of(&probe);
    sleep(schedule.initial_delay).await;
    let mut tally = Tally::default();
    while guest.qmp.is_connected() {
        if let Some(outcome) = ask(&guest, &probe, &*reach, schedule.timeout).await {
            match tally.count(&outcome, &schedule) {
                Some(Verdict::Good) => guest.learn(|facts| facts.readiness = Some(Readiness::Ready)),
                Some(Verdict::Bad) => {
                    let message = outcome.err().unwrap_or_default();
                    guest.learn(|facts| facts.readiness = Some(Readiness::NotReady(message)));
                }
                None => {}
            }
        }
        sleep(schedule.period).await;
    }
}

/// Asks for life until the machine ends or has failed to answer too often; says why then.
pub(crate) async fn liveness(guest: Arc<Guest>, probe: Probe, reach: Arc<dyn Reach>) -> Option<String> {
    let schedule = Schedule::of(&probe);
    sleep(schedule.initial_delay).await;
    let mut tally = Tally::default();
    while guest.qmp.is_connected() {
        if let Some(outcome) = ask(&guest, &probe, &*reach, schedule.timeout).await
            && tally.count(&outcome, &schedule) == Some(Verdict::Bad)
        {
            return Some(format!("the liveness probe failed: {}", outcome.err().unwrap_or_default()));
        }
        sleep(schedule.period).await;
    }
    None
}

#[derive(Debug)]
struct Schedule {
    initial_delay: Duration,
    timeout: Duration,
    period: Duration,
    successes: u64,
    failures: u64,
}

impl Schedule {
    fn of(probe: &Probe) -> Self {
        let number = |given: Option<i32>, default: u64| {
            given.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        Self {
            initial_delay: Duration::from_secs(number(probe.initial_delay_seconds, 0)),
            timeout: Duration::from_secs(number(probe.timeout_seconds, TIMEOUT)),
            period: Duration::from_secs(number(probe.period_seconds, PERIOD)),
            successes: number(probe.success_threshold, SUCCESSES),
            failures: number(probe.failure_threshold, FAILURES),
        }
    }
}

/// How often in a row the answer was the same.
#[derive(Debug, Default)]
struct Tally {
    successes: u64,
    failures: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
}

impl Tally {
    fn count(&mut self, outcome: &Result<(), String>, schedule: &Schedule) -> Option<Verdict> {
        if outcome.is_ok() {
            self.failures = 0;
            self.successes += 1;
            return (self.successes >= schedule.successes).then_some(Verdict::Good);
        }
        self.successes = 0;
        self.failures += 1;
        (self.failures >= schedule.failures).then_some(Verdict::Bad)
    }
}

/// One question. None while the guest is paused: it cannot answer, and that is no fault of its own.
async fn ask(guest: &Guest, probe: &Probe, reach: &dyn Reach, patience: Duration) -> Option<Result<(), String>> {
    let is_running = guest.qmp.status().await.is_ok_and(|status| status.running);
    if !is_running {
        return None;
    }
    let question = question(guest, probe, reach);
    Some(timeout(patience, question).await.unwrap_or_else(|_| Err(format!("no answer within {patience:?}"))))
}

async fn question(guest: &Guest, probe: &Probe, reach: &dyn Reach) -> Result<(), String> {
    if probe.guest_agent_ping.is_some() {
        return agent(guest)?.ping().await.map_err(|error| error.to_string());
    }
    if let Some(exec) = &probe.exec {
        return run(agent(guest)?, exec.command.as_deref().unwrap_or_default()).await;
    }
    if let Some(tcp) = &probe.tcp_socket {
        return dial(guest, reach, tcp.host.as_deref(), &tcp.port).await.map(drop);
    }
    if let Some(get) = &probe.http_get {
        let stream = dial(guest, reach, get.host.as_deref(), &get.port).await?;
        return http::get(stream, get).await;
    }
    Err("the probe asks nothing".to_owned())
}

fn agent(guest: &Guest) -> Result<&Agent, String> {
    guest.agent.as_deref().ok_or_else(|| "the machine has no channel for a guest agent".to_owned())
}

/// In the guest, without a shell; what counts is the exit code.
async fn run(agent: &Agent, command: &[String]) -> Result<(), String> {
    let (path, args) = command.split_first().ok_or("no command was given")?;
    let exec = Exec { path: path.clone(), args: args.to_vec(), ..Exec::default() };
    let pid = agent.exec(&exec).await.map_err(|error| error.to_string())?;
    loop {
        let status = agent.exec_status(pid).await.map_err(|error| error.to_string())?;
        if status.exited {
            return match (status.exit_code, status.signal) {
                (Some(0), _) => Ok(()),
                (Some(code), _) => Err(format!("{path} ended with {code}")),
                (None, signal) => Err(format!("{path} was ended by signal {}", signal.unwrap_or_default())),
            };
        }
        sleep(LOOK).await;
    }
}

async fn dial(guest: &Guest, reach: &dyn Reach, host: Option<&str>, port: &IntOrString) -> Result<TcpStream, String> {
    let number = match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(text) => text.parse().ok(),
    };
    let port = number.filter(|number| *number > 0).ok_or("the probe's port is not a number")?;
    let connected = if let Some(host) = host.filter(|host| !host.is_empty()) {
        TcpStream::connect((host, port)).await
    } else {
        let reached = reach.reach(guest, port, Transport::Tcp).await?;
        // Whatever was set up for it is needed until the connection is there.
        TcpStream::connect(reached.address).await
    };
    connected.map_err(|error| format!("port {port}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_counted_in_a_row() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(2), ..Probe::default() };
        let schedule = Schedule::of(&probe);
        let mut tally = Tally::default();
        let (good, bad) = (Ok(()), Err("no".to_owned()));
        let steps = [
            (&good, None),
            (&bad, None),
            (&good, None),
            (&good, Some(Verdict::Good)),
            (&bad, None),
            (&bad, Some(Verdict::Bad)),
        ];
        for (outcome, expected) in steps {
            assert_eq!(tally.count(outcome, &schedule), expected);
        }
    }

    #[test]
    fn what_is_not_said_is_as_in_kubernetes() {
        let schedule = Schedule::of(&Probe { period_seconds: Some(0), ..Probe::default() });
        assert_eq!((schedule.timeout.as_secs(), schedule.period.as_secs()), (1, 10));
        assert_eq!((schedule.successes, schedule.failures, schedule.initial_delay), (1, 3, Duration::ZERO));
    }
}

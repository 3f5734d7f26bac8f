//! Whom this host's clock follows: the setting `ntp-servers`, given to the time daemon that the host has.
//!
//! How it goes is told in the annotation of the Node that Harvester's clients read. The daemon's own configuration is left
//! alone: what users choose is a file of its own beside it, which goes when they choose nothing.

mod daemon;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use croft_api::harvester::Setting;
use croft_api::harvester::settings::{NTP_SERVERS, TimeServers};
use croft_meta::Chain;
use croft_reconcile::{Cache, Key, Source};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use daemon::Daemon;

const ANNOTATION: &str = "node.harvesterhci.io/ntp-service";
/// How often the daemon is asked how it goes.
const LOOK: Duration = Duration::from_secs(30);
/// The Node may not be there yet.
const AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct TimeService {
    pub(crate) client: Client,
    pub(crate) node_name: String,
    /// Where the host's daemons are configured; `None` if that is not this agent's to change.
    pub(crate) etc: Option<PathBuf>,
}

/// What the annotation says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    ntp_sync_status: &'static str,
    /// Separated by spaces.
    current_ntp_servers: String,
    /// Why the setting is not followed.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Report {
    fn disabled(message: impl Into<String>) -> Self {
        Self { ntp_sync_status: "disabled", message: message.into(), ..Self::default() }
    }
}

impl TimeService {
    pub(crate) async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.keep()).await;
    }

    async fn keep(&self) {
        let cache: Cache<Setting> = Cache::default();
        let source = Source { fields: Some(format!("metadata.name={NTP_SERVERS}")), ..Source::of::<Setting>() };
        let mut changes = pin!(cache.follow(self.client.clone(), source));
        let mut told: Option<Vec<String>> = None;
        let mut shown: Option<Report> = None;
        let mut wait = Duration::ZERO;
        let mut is_synced = false;
        loop {
            tokio::select! {
                change = changes.next() => if change.is_none() { return },
                () = cache.synced(), if !is_synced => is_synced = true,
                () = tokio::time::sleep(wait), if is_synced => {}
            }
            if !is_synced {
                continue;
            }
            let setting = cache.get(&Key::new("", NTP_SERVERS));
            let servers = chosen(setting.as_ref().map(|setting| setting.effective()).unwrap_or_default());
            let report = self.look(&servers, &mut told).await;
            wait = LOOK;
            if shown.as_ref() != Some(&report) {
                match self.show(&report).await {
                    Ok(()) => shown = Some(report),
                    Err(error) => {
                        tracing::debug!(error = %Chain(&error), "how the clock is cannot be shown yet");
                        wait = AGAIN;
                    }
                }
            }
        }
    }

    /// Brings the daemon to what is chosen, and asks how it goes. `told` is what it was last told by this process: one that
    /// died may have written the file and no more.
    async fn look(&self, servers: &[String], told: &mut Option<Vec<String>>) -> Report {
        let Some(etc) = &self.etc else {
            return Report::disabled(
                "the clock of this host is not Croft's: it is not the server that is installed here",
            );
        };
        let Some(daemon) = Daemon::find(etc).await else {
            *told = None;
            return Report::disabled("this host has neither chrony nor systemd-timesyncd, so nothing sets its clock");
        };
        if told.as_deref() != Some(servers) {
            match daemon.tell(servers).await {
                Ok(is_changed) => {
                    *told = Some(servers.to_vec());
                    if is_changed {
                        tracing::info!(servers = servers.join(" "), "the time daemon was told whom to ask");
                    }
                }
                Err(error) => {
                    let message = Chain(&error).to_string();
                    tracing::warn!(error = message, "the time daemon cannot be told whom to ask");
                    return Report { ntp_sync_status: "unsynced", message, ..Report::default() };
                }
            }
        }
        match daemon.state().await {
            Ok(state) => Report {
                ntp_sync_status: if state.is_synced { "synced" } else { "unsynced" },
                current_ntp_servers: state.servers.join(" "),
                message: String::new(),
            },
            Err(error) => Report {
                ntp_sync_status: "unsynced",
                message: Chain(&error).to_string(),
                current_ntp_servers: servers.join(" "),
            },
        }
    }

    async fn show(&self, report: &Report) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        // A struct of texts can always be written.
        let text = serde_json::to_string(report).unwrap_or_default();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let change = json!({ "metadata": { "annotations": { ANNOTATION: text } } });
        nodes.patch(&self.node_name, &params, &Patch::Merge(&change)).await.map(drop)
    }
}

/// Names and addresses were checked when they were written; whatever else there might be is not for a configuration file.
fn chosen(value: &str) -> Vec<String> {
    let chosen: TimeServers = serde_json::from_str(value).unwrap_or_default();
    let is_name =
        |server: &String| !server.is_empty() && server.chars().all(|c| c.is_ascii_alphanumeric() || ".:-".contains(c));
    chosen.ntp_servers.into_iter().filter(is_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_and_addresses_are_taken_from_the_setting() {
        for nothing in ["", "{}", "no json", r#"{"ntpServers":[]}"#] {
            assert!(chosen(nothing).is_empty(), "{nothing}");
        }
        let value = r#"{"ntpServers":["ntp.example.com","192.0.2.1","2001:db8::1","a b","x\nserver evil",""]}"#;
        assert_eq!(chosen(value), ["ntp.example.com", "192.0.2.1", "2001:db8::1"]);
    }

    #[test]
    fn the_annotation_is_harvesters_and_says_why_if_something_is_wrong() {
        let report = Report {
            ntp_sync_status: "synced",
            current_ntp_servers: "a.example b.example".to_owned(),
            message: String::new(),
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(text, r#"{"ntpSyncStatus":"synced","currentNtpServers":"a.example b.example"}"#);
        let text = serde_json::to_string(&Report::disabled("why")).unwrap();
        assert_eq!(text, r#"{"ntpSyncStatus":"disabled","currentNtpServers":"","message":"why"}"#);
    }
}

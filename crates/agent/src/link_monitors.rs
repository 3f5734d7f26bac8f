//! LinkMonitors: which links of this host are to be shown, and how they are.
//!
//! People choose the uplinks of networks from them. Links come and go without anybody telling, so that they are looked at
//! now and then besides.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{LinkMonitor, LinkStatus, set_condition};
use croft_meta::Chain;
use croft_net::{LinkFacts, list_links};
use croft_reconcile::failure::{absent_is_none, is_conflict};
use croft_reconcile::{Cache, Source};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use regex::RegexBuilder;
use tokio_util::sync::CancellationToken;

use crate::MANAGER;

const LOOK: Duration = Duration::from_secs(30);
/// A rule that needs more than this to be understood is no rule.
const RULE_BYTES: usize = 1 << 18;

pub(crate) struct LinkMonitors {
    pub(crate) client: Client,
    pub(crate) node_name: String,
}

impl LinkMonitors {
    pub(crate) async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.keep()).await;
    }

    async fn keep(&self) {
        let monitors: Cache<LinkMonitor> = Cache::default();
        let nodes: Cache<Node> = Cache::default();
        let source = Source { fields: Some(format!("metadata.name={}", self.node_name)), ..Source::of::<Node>() };
        let mut changes = pin!(monitors.follow(self.client.clone(), Source::of::<LinkMonitor>()));
        let mut labels = pin!(nodes.follow(self.client.clone(), source));
        let mut timer = tokio::time::interval(LOOK);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let is_due = tokio::select! {
                change = changes.next() => change.is_some(),
                // The node itself is written all the time; what matters of it changes rarely.
                change = labels.next() => change.is_some_and(|change| {
                    let labels = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| node.metadata.labels.clone());
                    labels(&change.old) != labels(&change.new)
                }),
                _ = timer.tick() => true,
            };
            let there = monitors.list();
            if is_due && !there.is_empty() {
                let node = nodes.list().into_iter().next();
                self.look(&there, node.as_deref(), &monitors).await;
            }
        }
    }

    /// What fails is tried again at the next look.
    async fn look(&self, monitors: &[Arc<LinkMonitor>], node: Option<&Node>, cache: &Cache<LinkMonitor>) {
        // Before the node is there, nobody knows what it is called by.
        let Some(node) = node else { return };
        let links = match list_links().await {
            Ok(links) => links,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the links of this host cannot be listed");
                return;
            }
        };
        for monitor in monitors {
            let new = self.told(monitor, node, &links, Timestamp::now());
            if new.status == monitor.status {
                continue;
            }
            let api: Api<LinkMonitor> = Api::all(self.client.clone());
            let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            match absent_is_none(api.replace(&new.name_any(), &params, &new).await) {
                Ok(written) => written.into_iter().for_each(|written| cache.wrote(written)),
                Err(error) if is_conflict(&error) => {}
                Err(error) => {
                    let monitor = new.name_any();
                    tracing::warn!(monitor, error = %Chain(&error), "a LinkMonitor cannot be written");
                }
            }
        }
    }

    /// The monitor with what it is to say of this node.
    fn told(&self, monitor: &LinkMonitor, node: &Node, links: &[LinkFacts], now: Timestamp) -> LinkMonitor {
        let mut new = monitor.clone();
        let status = new.status.get_or_insert_default();
        let labels = node.labels();
        if !monitor.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
            status.link_status.remove(&self.node_name);
            return new;
        }
        match chosen(monitor, links) {
            Ok(chosen) => {
                status.link_status.insert(self.node_name.clone(), chosen);
                set_condition(&mut status.conditions, "ready", true, ("", ""), now);
            }
            Err(why) => {
                status.link_status.remove(&self.node_name);
                set_condition(&mut status.conditions, "ready", false, ("InvalidRule", &why), now);
            }
        }
        new
    }
}

fn chosen(monitor: &LinkMonitor, links: &[LinkFacts]) -> Result<Vec<LinkStatus>, String> {
    let rule = &monitor.spec.target_link_rule;
    let (kinds, names) = (rules(&rule.type_rule)?, rules(&rule.name_rule)?);
    let fits = |rules: &[regex::Regex], text: &str| rules.is_empty() || rules.iter().any(|rule| rule.is_match(text));
    let chosen = links.iter().filter(|link| fits(&kinds, &link.kind) && fits(&names, &link.name));
    Ok(chosen.map(shown).collect())
}

/// Expressions separated by commas, each for the whole of a word.
fn rules(text: &str) -> Result<Vec<regex::Regex>, String> {
    let rules = text.split(',').map(str::trim).filter(|rule| !rule.is_empty());
    let compile = |rule: &str| {
        let whole = RegexBuilder::new(&format!("^(?:{rule})$")).size_limit(RULE_BYTES).build();
        whole.map_err(|error| format!("{rule:?} is not a regular expression: {error}"))
    };
    rules.map(compile).collect()
}

fn shown(link: &LinkFacts) -> LinkStatus {
    let state = match link.is_up {
        Some(true) => "up",
        Some(false) => "down",
        None => "unknown",
    };
    LinkStatus {
        name: link.name.clone(),
        index: Some(link.index.into()),
        type_: Some(link.kind.clone()),
        mac: link.mac.map(|mac| mac.to_string()),
        promiscuous: Some(link.is_promiscuous),
        state: Some(state.to_owned()),
        master_index: link.master.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn link(index: u32, name: &str, kind: &str) -> LinkFacts {
        LinkFacts {
            index,
            name: name.to_owned(),
            kind: kind.to_owned(),
            mac: Some(croft_net::Mac([2, 0, 0, 0, 0, 1])),
            is_promiscuous: false,
            is_up: Some(true),
            master: (index == 2).then_some(3),
        }
    }

    fn monitor(spec: &Value) -> LinkMonitor {
        serde_json::from_value(json!({"metadata": {"name": "m"}, "spec": spec})).unwrap()
    }

    fn told(spec: &Value) -> LinkMonitor {
        let monitors = LinkMonitors { client: client(), node_name: "one".to_owned() };
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "one", "labels": {"rack": "a"}}})).unwrap();
        let links = [
            link(2, "ens3", "device"),
            link(3, "mgmt-br", "bridge"),
            link(4, "mgmt-bo", "bond"),
            link(5, "ens4", "device"),
        ];
        monitors.told(&monitor(spec), &node, &links, Timestamp::UNIX_EPOCH)
    }

    /// Nobody is asked anything.
    fn client() -> Client {
        Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap()
    }

    fn names(monitor: &LinkMonitor) -> Vec<&str> {
        let status = monitor.status.as_ref().unwrap();
        status.link_status.get("one").into_iter().flatten().map(|link| link.name.as_str()).collect()
    }

    #[tokio::test]
    async fn links_are_chosen_by_kind_and_name() {
        let rule = |kinds: &str, names: &str| json!({"targetLinkRule": {"typeRule": kinds, "nameRule": names}});
        for (spec, expected) in [
            (rule("device", ""), vec!["ens3", "ens4"]),
            (rule("", "mgmt(-br|-bo)"), vec!["mgmt-br", "mgmt-bo"]),
            (rule("bridge,bond", ""), vec!["mgmt-br", "mgmt-bo"]),
            (rule("device", "ens3"), vec!["ens3"]),
            (rule("dev", ""), vec![]),
            (json!({}), vec!["ens3", "mgmt-br", "mgmt-bo", "ens4"]),
            (json!({"nodeSelector": {"rack": "a"}, "targetLinkRule": {"nameRule": "ens4"}}), vec!["ens4"]),
            (json!({"nodeSelector": {"rack": "b"}}), vec![]),
        ] {
            assert_eq!(names(&told(&spec)), expected, "{spec}");
        }
        let status = told(&json!({"targetLinkRule": {"nameRule": "ens3"}})).status.unwrap();
        let expected = json!([{"name": "ens3", "index": 2, "type": "device", "mac": "02:00:00:00:00:01",
            "promiscuous": false, "state": "up", "masterIndex": 3}]);
        assert_eq!(serde_json::to_value(&status.link_status["one"]).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_rule_that_is_none_is_told() {
        let status = told(&json!({"targetLinkRule": {"nameRule": "ens("}})).status.unwrap();
        assert!(status.link_status.is_empty());
        assert_eq!(status.conditions[0].status, "False");
        assert!(status.conditions[0].message.as_deref().unwrap_or_default().contains("not a regular expression"));
    }
}

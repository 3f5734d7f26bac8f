//! What the parts of the agent have found out about this machine, as conditions of its Node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeCondition;
use tokio::sync::watch;

use super::facts::Host;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// Whether virtual machines can be run at all. Nothing said means yes.
    Ready,
    /// Whether guests run on the processor itself, or are emulated.
    Kvm,
    /// Whether disks are cloned by reference, or copied.
    Pool,
    /// Whether guests have interfaces of the host's network, or QEMU's own.
    Networking,
    /// Whether guests are held to their limits.
    Cgroups,
}

impl Aspect {
    const fn condition(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Kvm => "KVM",
            Self::Pool => "Pool",
            Self::Networking => "Networking",
            Self::Cgroups => "Cgroups",
        }
    }
}

/// One word on one aspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub is_good: bool,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// A sentence for people; what to do about it, if it is not good.
    pub message: String,
}

impl Finding {
    pub fn good(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_good: true, reason, message: message.into() }
    }

    pub fn bad(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_good: false, reason, message: message.into() }
    }
}

/// The findings so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<watch::Sender<BTreeMap<Aspect, Finding>>>);

impl Health {
    pub fn set(&self, aspect: Aspect, finding: Finding) {
        self.0.send_if_modified(|all| {
            let is_new = all.get(&aspect) != Some(&finding);
            if is_new {
                all.insert(aspect, finding);
            }
            is_new
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<BTreeMap<Aspect, Finding>> {
        self.0.subscribe()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.borrow().get(&Aspect::Ready).is_none_or(|finding| finding.is_good)
    }

    pub(super) fn conditions(&self, host: &Host) -> Vec<NodeCondition> {
        let findings = self.0.borrow().clone();
        let mut conditions = vec![
            pressure(
                "MemoryPressure",
                host.is_short_of_memory(),
                "KubeletHasInsufficientMemory",
                "KubeletHasSufficientMemory",
                "memory",
            ),
            pressure(
                "DiskPressure",
                host.is_short_of_disk(),
                "KubeletHasDiskPressure",
                "KubeletHasNoDiskPressure",
                "disk space",
            ),
            pressure(
                "PIDPressure",
                host.is_short_of_pids(),
                "KubeletHasInsufficientPID",
                "KubeletHasSufficientPID",
                "process ids",
            ),
        ];
        conditions.extend(findings.iter().map(|(aspect, finding)| condition(aspect.condition(), finding)));
        if !findings.contains_key(&Aspect::Ready) {
            let ready = Finding::good("KubeletReady", "the agent is running");
            conditions.push(condition(Aspect::Ready.condition(), &ready));
        }
        if !findings.contains_key(&Aspect::Kvm) {
            let mut probing = condition("KVM", &Finding::bad("Probing", "a guest is being run to find out"));
            "Unknown".clone_into(&mut probing.status);
            conditions.push(probing);
        }
        conditions
    }
}

/// The names of reasons are those that tools know.
fn pressure(type_: &str, is_short: bool, bad: &str, good: &str, of_what: &str) -> NodeCondition {
    NodeCondition {
        type_: type_.to_owned(),
        status: if is_short { "True" } else { "False" }.to_owned(),
        reason: Some(if is_short { bad } else { good }.to_owned()),
        message: Some(format!("the node has {} {of_what}", if is_short { "hardly any" } else { "enough" })),
        ..NodeCondition::default()
    }
}

fn condition(type_: &str, finding: &Finding) -> NodeCondition {
    NodeCondition {
        type_: type_.to_owned(),
        status: if finding.is_good { "True" } else { "False" }.to_owned(),
        reason: Some(finding.reason.to_owned()),
        message: Some(finding.message.clone()),
        ..NodeCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(health: &Health) -> Vec<(String, String, String)> {
        let conditions = health.conditions(&Host::default());
        conditions.into_iter().map(|c| (c.type_, c.status, c.reason.unwrap_or_default())).collect()
    }

    fn has(health: &Health, type_: &str, status: &str, reason: &str) -> bool {
        shown(health).contains(&(type_.to_owned(), status.to_owned(), reason.to_owned()))
    }

    #[test]
    fn a_node_is_ready_unless_something_says_otherwise() {
        let health = Health::default();
        assert!(health.is_ready());
        assert!(has(&health, "Ready", "True", "KubeletReady"));
        assert!(has(&health, "KVM", "Unknown", "Probing"));
        health.set(Aspect::Kvm, Finding::bad("NoDevice", "no /dev/kvm"));
        assert!(health.is_ready());
        assert!(has(&health, "KVM", "False", "NoDevice"));
        health.set(Aspect::Ready, Finding::bad("NoQemu", "QEMU is not installed"));
        assert!(!health.is_ready());
        assert!(has(&health, "Ready", "False", "NoQemu"));
    }

    #[test]
    fn only_news_wakes_those_who_wait() {
        let health = Health::default();
        let mut waiting = health.subscribe();
        health.set(Aspect::Pool, Finding::good("Reflinks", "xfs"));
        assert!(waiting.has_changed().unwrap());
        waiting.borrow_and_update();
        health.set(Aspect::Pool, Finding::good("Reflinks", "xfs"));
        assert!(!waiting.has_changed().unwrap());
    }
}

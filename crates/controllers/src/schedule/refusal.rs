//! Why no node takes a guest, in words that kube-scheduler's users know, with the figures that they miss there.

use std::collections::BTreeMap;
use std::fmt;

use super::amounts::Shortage;

/// How many nodes are told of one by one.
const NODES_TOLD: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    NotReady,
    NotForGuests,
    Cordoned,
    Tainted { key: String, value: String },
    NodeAffinity,
    NoNetwork(String),
    Insufficient(Shortage),
    VolumeElsewhere(String),
    SpreadLabelMissing,
    Spread,
    Together,
    Apart,
    ApartForOthers,
}

impl Reason {
    /// Equal for what is counted together.
    fn title(&self) -> String {
        match self {
            Self::NotReady => "node(s) were not ready".to_owned(),
            Self::NotForGuests => "node(s) were not labeled kubevirt.io/schedulable=true".to_owned(),
            Self::Cordoned => "node(s) were unschedulable".to_owned(),
            Self::Tainted { key, value } => format!("node(s) had untolerated taint {{{key}: {value}}}"),
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector".to_owned(),
            Self::NoNetwork(name) => format!("node(s) were not connected to cluster network {name}"),
            Self::Insufficient(shortage) => format!("Insufficient {}", shortage.resource),
            Self::VolumeElsewhere(claim) => format!("node(s) didn't match the node affinity of volume {claim}"),
            Self::SpreadLabelMissing => {
                "node(s) didn't match pod topology spread constraints (missing required label)".to_owned()
            }
            Self::Spread => "node(s) didn't match pod topology spread constraints".to_owned(),
            Self::Together => "node(s) didn't match pod affinity rules".to_owned(),
            Self::Apart => "node(s) didn't match pod anti-affinity rules".to_owned(),
            Self::ApartForOthers => "node(s) didn't satisfy existing pods anti-affinity rules".to_owned(),
        }
    }

    fn figures(&self) -> Option<&Shortage> {
        match self {
            Self::Insufficient(shortage) => Some(shortage),
            _ => None,
        }
    }
}

/// What every node said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) nodes: Vec<(String, Vec<Reason>)>,
}

/// How often a reason was given, and the most that any of these nodes has free.
struct Count<'a> {
    nodes: usize,
    best: Option<&'a Shortage>,
}

impl Refusal {
    fn counts(&self) -> BTreeMap<String, Count<'_>> {
        let mut counts: BTreeMap<String, Count<'_>> = BTreeMap::new();
        for reason in self.nodes.iter().flat_map(|(_, reasons)| reasons) {
            let count = counts.entry(reason.title()).or_insert(Count { nodes: 0, best: None });
            count.nodes += 1;
            count.best = [count.best, reason.figures()].into_iter().flatten().max_by_key(|shortage| shortage.free);
        }
        counts
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes.is_empty() {
            return f.write_str("no nodes available to schedule the virtual machine instance");
        }
        write!(f, "0/{} nodes are available: ", self.nodes.len())?;
        for (index, (title, count)) in self.counts().iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} {title}", count.nodes)?;
            if let Some(best) = count.best {
                let at_most = if count.nodes > 1 { " at most" } else { "" };
                write!(f, " (requested {}, free {}{at_most})", best.text(best.requested), best.text(best.free))?;
            }
        }
        f.write_str(".")?;
        if self.nodes.len() == 1 {
            return Ok(());
        }
        for (name, reasons) in self.nodes.iter().take(NODES_TOLD) {
            let words: Vec<String> = reasons.iter().map(for_one_node).collect();
            write!(f, " {name}: {}.", words.join(", "))?;
        }
        Ok(())
    }
}

fn for_one_node(reason: &Reason) -> String {
    let title = reason.title();
    let words = title.strip_prefix("node(s) ").unwrap_or(&title);
    match reason.figures() {
        Some(short) => format!("{words} (requested {}, free {})", short.text(short.requested), short.text(short.free)),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn memory(free: i64) -> Reason {
        Reason::Insufficient(Shortage { resource: "memory".to_owned(), requested: 4 * GIB, free })
    }

    #[test]
    fn one_node_is_told_in_one_sentence() {
        let refusal = Refusal { nodes: vec![("n1".to_owned(), vec![memory(2 * GIB)])] };
        let expected = "0/1 nodes are available: 1 Insufficient memory (requested 4Gi, free 2Gi).";
        assert_eq!(refusal.to_string(), expected);
    }

    #[test]
    fn many_nodes_are_counted_and_then_told_one_by_one() {
        let refusal = Refusal {
            nodes: vec![
                ("n1".to_owned(), vec![memory(GIB)]),
                ("n2".to_owned(), vec![Reason::Cordoned]),
                ("n3".to_owned(), vec![memory(2 * GIB)]),
            ],
        };
        let expected = "0/3 nodes are available: 2 Insufficient memory (requested 4Gi, free 2Gi at most), \
                        1 node(s) were unschedulable. n1: Insufficient memory (requested 4Gi, free 1Gi). \
                        n2: were unschedulable. n3: Insufficient memory (requested 4Gi, free 2Gi).";
        assert_eq!(refusal.to_string(), expected);
    }

    #[test]
    fn no_node_at_all_is_said_too() {
        let expected = "no nodes available to schedule the virtual machine instance";
        assert_eq!(Refusal::default().to_string(), expected);
    }
}

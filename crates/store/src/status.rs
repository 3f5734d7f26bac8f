//! How a store is: how large, how much of that it needs, and how those are who keep it.

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `embedded` or `etcd`.
    pub engine: String,
    pub revision: u64,
    /// What came before is forgotten.
    pub compacted_revision: u64,
    /// By this server, since it was started; as times are in objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_compaction: Option<String>,
    /// On the disk; in a cluster, of the largest member.
    pub size_bytes: u64,
    /// What of that is not free for what is to come.
    pub in_use_bytes: u64,
    /// What defragmenting would give back to the disk; in a cluster, of the member that has most of it.
    pub reclaimable_bytes: u64,
    /// Why writes are refused, when they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<String>,
    /// Something that was read was not as it was written.
    pub is_damaged: bool,
    /// Those of etcd, by their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
    /// Of a cluster; each member as far as it answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub endpoint: String,
    pub id: String,
    pub version: String,
    pub is_leader: bool,
    pub size_bytes: u64,
    pub in_use_bytes: u64,
    /// What is wrong with it: an alarm, or that it does not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// As times are in objects.
pub(crate) fn now() -> String {
    croft_meta::time::format_seconds(jiff::Timestamp::now())
}

impl Member {
    pub(crate) fn reclaimable_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.in_use_bytes)
    }
}

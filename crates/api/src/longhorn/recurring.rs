//! Jobs that keep volumes again and again, in Longhorn's words.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{kind, nullable};

/// Of a claim: its labels say which jobs it has.
pub const SOURCE_LABEL: &str = "recurring-job.longhorn.io/source";
/// Of a claim, followed by the name of a job.
pub const JOB_LABEL: &str = "recurring-job.longhorn.io/";
/// Of a claim, followed by the name of a group of jobs.
pub const GROUP_LABEL: &str = "recurring-job-group.longhorn.io/";
pub const ENABLED: &str = "enabled";
/// The jobs of volumes that have none of their own.
pub const DEFAULT_GROUP: &str = "default";
/// The parameter of a StorageClass that gives its volumes jobs.
pub const SELECTOR: &str = "recurringJobSelector";
/// Of what a job makes.
pub const MADE_BY_LABEL: &str = "RecurringJob";
/// When it was to be made.
pub const TIME_LABEL: &str = "croft.io/recurring-job-time";

kind! {
    /// What is done to volumes, and when.
    RecurringJob, "longhorn.io", "v1beta2", "recurringjobs", NamespaceResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        spec: RecurringJobSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<RecurringJobStatus>,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecurringJobSpec {
    #[serde(deserialize_with = "nullable")]
    pub task: String,
    #[serde(deserialize_with = "nullable")]
    pub cron: String,
    #[serde(deserialize_with = "nullable")]
    pub groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// `count-based` or `age-based`.
    #[serde(deserialize_with = "nullable")]
    pub retention_policy: String,
    /// How many stay, of each volume.
    #[serde(deserialize_with = "nullable")]
    pub retain: i64,
    /// As Go writes durations.
    #[serde(deserialize_with = "nullable")]
    pub retain_age: String,
    /// How many volumes at a time.
    #[serde(deserialize_with = "nullable")]
    pub concurrency: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecurringJobStatus {
    #[serde(deserialize_with = "nullable")]
    pub execution_count: i64,
}

/// What a job does, of what Longhorn's can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Snapshot,
    Backup,
    /// Keeps the newest snapshots and deletes the others, whoever made them.
    DeleteSnapshots,
}

impl Task {
    /// The error says why there is no such task here.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "snapshot" | "snapshot-force-create" => Ok(Self::Snapshot),
            "backup" | "backup-force-create" => Ok(Self::Backup),
            "snapshot-delete" => Ok(Self::DeleteSnapshots),
            "snapshot-cleanup" => {
                Err("snapshot-cleanup removes what Longhorn makes for itself, of which Croft has nothing: \
                                       there is nothing to clean up. snapshot-delete deletes snapshots beyond a number")
            }
            "filesystem-trim" => {
                Err("filesystem-trim needs file systems that the host has mounted. Croft gives freed blocks \
                                      back as soon as the guest discards them: run fstrim in the guest, or mount with discard")
            }
            "system-backup" => Err("system-backup keeps Longhorn's own objects, which Croft does not use"),
            _ => Err("it must be snapshot, snapshot-force-create, backup, backup-force-create or snapshot-delete"),
        }
    }
}

/// The jobs that a claim has: by its own labels if these count, or by its class, or those of the default group.
pub fn applies(
    job: &str,
    groups: &[String],
    claim_labels: Option<&BTreeMap<String, String>>,
    class_parameters: Option<&BTreeMap<String, String>>,
) -> bool {
    let is_in = |group: &str| groups.iter().any(|it| it == group);
    let own = claim_labels.filter(|labels| labels.get(SOURCE_LABEL).is_some_and(|it| it == ENABLED));
    let own: Vec<(&str, bool)> = own
        .into_iter()
        .flatten()
        .filter(|(name, value)| *value == ENABLED && *name != SOURCE_LABEL)
        .filter_map(|(name, _)| {
            let group = name.strip_prefix(GROUP_LABEL).map(|group| (group, true));
            group.or_else(|| name.strip_prefix(JOB_LABEL).map(|job| (job, false)))
        })
        .collect();
    let chosen = |is_group: bool, name: &str| if is_group { is_in(name) } else { name == job };
    if !own.is_empty() {
        return own.into_iter().any(|(name, is_group)| chosen(is_group, name));
    }
    let selector = class_parameters.and_then(|parameters| parameters.get(SELECTOR));
    let selected: Vec<Selected> = selector.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    if !selected.is_empty() {
        return selected.iter().any(|one| chosen(one.is_group, &one.name));
    }
    is_in(DEFAULT_GROUP)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Selected {
    name: String,
    is_group: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> BTreeMap<String, String> {
        names.iter().map(|name| ((*name).to_owned(), ENABLED.to_owned())).collect()
    }

    #[test]
    fn a_volume_has_the_jobs_that_it_names_or_the_default_ones() {
        let groups = ["fast".to_owned(), "default".to_owned()];
        let (own, other) = ("recurring-job.longhorn.io/hourly", "recurring-job.longhorn.io/daily");
        let cases: [(&[&str], bool); 6] = [
            (&[], true),
            (&[SOURCE_LABEL], true),
            (&[SOURCE_LABEL, own], true),
            (&[SOURCE_LABEL, other], false),
            (&[SOURCE_LABEL, "recurring-job-group.longhorn.io/fast"], true),
            (&[SOURCE_LABEL, "recurring-job-group.longhorn.io/slow"], false),
        ];
        for (names, expected) in cases {
            assert_eq!(applies("hourly", &groups, Some(&labels(names)), None), expected, "{names:?}");
        }
        // Without the source, labels of a claim do not count.
        assert!(applies("hourly", &groups, Some(&labels(&[other])), None));
        assert!(!applies("hourly", &[], Some(&labels(&[own])), None));
    }

    #[test]
    fn a_class_may_choose_for_its_volumes() {
        let class = |text: &str| BTreeMap::from([(SELECTOR.to_owned(), text.to_owned())]);
        let groups = ["fast".to_owned()];
        let by = |text: &str| applies("hourly", &groups, None, Some(&class(text)));
        assert!(by(r#"[{"name":"hourly","isGroup":false}]"#));
        assert!(by(r#"[{"name":"fast","isGroup":true}]"#));
        assert!(!by(r#"[{"name":"hourly","isGroup":true}]"#));
        assert!(!by("nonsense"));
    }

    #[test]
    fn tasks_without_a_meaning_say_why() {
        assert_eq!(Task::parse("backup-force-create"), Ok(Task::Backup));
        assert!(Task::parse("filesystem-trim").unwrap_err().contains("fstrim"));
        assert!(Task::parse("").unwrap_err().contains("snapshot-delete"));
    }
}

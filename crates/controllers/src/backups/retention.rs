//! Backups that are too many or too old, by what the annotations of their machine say.
//!
//! Of what is ready, the newest always stays. Those of a schedule are its own; those of another machine of the same name, of
//! another cluster, or with the annotation `croft.io/keep` are nobody's to delete.

use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{SCHEDULE_ANNOTATION, VirtualMachineBackup};
use croft_reconcile::failure::{absent_is_none, is_not_found};
use croft_reconcile::{Error, Key};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};

use super::{Keeper, Work};

/// On a machine: how many backups there may be, and how old they may become.
const MOST: &str = "croft.io/keep-backups";
const LONGEST: &str = "croft.io/keep-backups-for";
/// On a backup: it stays.
const KEEP: &str = "croft.io/keep";
/// How often it is looked whether something has become too old.
const EVERY: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rule {
    most: Option<usize>,
    longest: Option<SignedDuration>,
}

/// The error is for the user.
fn rule(text: impl Fn(&str) -> Option<String>) -> Result<Rule, String> {
    let most = text(MOST).map(|it| match it.trim().parse() {
        Ok(0) | Err(_) => Err(format!("{MOST} must be a number above 0, and is {it:?}")),
        Ok(most) => Ok(most),
    });
    let longest = text(LONGEST)
        .map(|it| duration(it.trim()).ok_or_else(|| format!("{LONGEST} must be like 12h, 30d or 8w, and is {it:?}")));
    Ok(Rule { most: most.transpose()?, longest: longest.transpose()? })
}

fn duration(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i64 = number.parse().ok().filter(|number| *number > 0)?;
    let hours = match unit {
        "h" => 1,
        "d" => 24,
        "w" => 7 * 24,
        _ => return None,
    };
    SignedDuration::try_from_hours(number.checked_mul(hours)?)
}

/// What goes. The newest of all stays, however old it is.
fn surplus<T: Clone>(rule: Rule, mut backups: Vec<(Timestamp, T)>, now: Timestamp) -> Vec<T> {
    backups.sort_by_key(|(taken, _)| std::cmp::Reverse(*taken));
    let is_too_old = |taken: Timestamp| rule.longest.is_some_and(|longest| now.duration_since(taken) > longest);
    let is_too_many = |index: usize| rule.most.is_some_and(|most| index >= most);
    let rest = backups.into_iter().enumerate().skip(1);
    rest.filter(|(index, (taken, _))| is_too_many(*index) || is_too_old(*taken)).map(|(_, (_, it))| it).collect()
}

impl Keeper {
    /// Has those looked after who may have something that is too old.
    pub(super) async fn watch_ages(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EVERY).await;
            for machine in self.inventory.machines.list() {
                if machine.annotations().contains_key(LONGEST) {
                    self.keys.send(Work::Retention(Key::of(machine.as_ref())), Duration::ZERO).await;
                }
            }
        }
    }

    pub(super) async fn retain(&self, key: &Key) -> Result<(), Error> {
        let Some(machine) = self.inventory.machines.get(key) else { return Ok(()) };
        let rule = match rule(|name| machine.annotations().get(name).cloned()) {
            Ok(rule) => rule,
            Err(why) => {
                self.events.warning(machine.as_ref(), "KeepBackups", &why);
                return Ok(());
            }
        };
        if rule == Rule::default() {
            return Ok(());
        }
        let own = self.backups.list().into_iter().filter(|backup| {
            let source = backup.status.as_ref().and_then(|status| status.source_uid.as_ref());
            backup.metadata.namespace.as_deref() == Some(key.namespace.as_str())
                && source.is_some()
                && source == machine.metadata.uid.as_ref()
                && is_subject(backup)
        });
        let mut dated: Vec<_> = own.filter_map(|backup| Some((taken_at(&backup)?, backup))).collect();
        // Of two of one second the same one is always the newer: the one that stays is the one that is looked at again.
        dated.sort_by_key(|(taken, backup)| (*taken, backup.name_any()));
        dated.reverse();
        let newest = dated.first().map(|(_, backup)| Arc::clone(backup));
        let gone = surplus(rule, dated, Timestamp::now());
        if gone.is_empty() || !self.is_still_good(newest.as_deref()).await? {
            return Ok(());
        }
        for backup in gone {
            if !self.is_read(&Key::of(backup.as_ref())) {
                self.drop_backup(&backup).await?;
            }
        }
        Ok(())
    }

    /// The server is asked: somebody may have deleted the one that is to stay.
    async fn is_still_good(&self, newest: Option<&VirtualMachineBackup>) -> Result<bool, Error> {
        let Some(newest) = newest else { return Ok(false) };
        let api: Api<VirtualMachineBackup> =
            Api::namespaced(self.client.clone(), &newest.namespace().unwrap_or_default());
        let now = absent_is_none(api.get(&newest.name_any()).await)?;
        Ok(now.is_some_and(|now| now.metadata.uid == newest.metadata.uid && is_subject(&now)))
    }

    async fn drop_backup(&self, backup: &VirtualMachineBackup) -> Result<(), Error> {
        let (namespace, name) = (backup.namespace().unwrap_or_default(), backup.name_any());
        let api: Api<VirtualMachineBackup> = Api::namespaced(self.client.clone(), &namespace);
        let same = Preconditions { uid: backup.metadata.uid.clone(), resource_version: None };
        tracing::info!(namespace, name, "a backup is deleted: its machine has newer ones");
        match api.delete(&name, &DeleteParams { preconditions: Some(same), ..DeleteParams::default() }).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether it counts, and may go.
fn is_subject(backup: &VirtualMachineBackup) -> bool {
    let status = backup.status.as_ref();
    let annotations = backup.annotations();
    !backup.spec.is_snapshot()
        && backup.metadata.deletion_timestamp.is_none()
        && status.and_then(|status| status.ready_to_use) == Some(true)
        && !annotations.contains_key(SCHEDULE_ANNOTATION)
        && annotations.get(KEEP).map(String::as_str) != Some("true")
}

fn taken_at(backup: &VirtualMachineBackup) -> Option<Timestamp> {
    let status = backup.status.as_ref().and_then(|status| status.creation_time.clone());
    status.or_else(|| backup.metadata.creation_timestamp.clone()).map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(most: Option<&str>, longest: Option<&str>) -> Result<Rule, String> {
        rule(|name| if name == MOST { most } else { longest }.map(str::to_owned))
    }

    #[test]
    fn what_is_too_many_or_too_old_goes_but_never_the_last() {
        let at = |hours: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours);
        let backups = || vec![(at(2), 2), (at(9), 9), (at(1), 1), (at(5), 5)];
        let goes = |most, longest, hour| surplus(parsed(most, longest).unwrap(), backups(), at(hour));
        assert_eq!(goes(Some("2"), None, 10), [2, 1]);
        assert_eq!(goes(None, Some("6h"), 10), [2, 1]);
        assert_eq!(goes(Some("3"), Some("7h"), 9), [1]);
        assert_eq!(goes(Some("9"), Some("1d"), 10), [0; 0]);
        assert_eq!(goes(None, Some("1w"), 1000), [5, 2, 1], "the newest stays");
        assert_eq!(goes(Some("1"), None, 10), [5, 2, 1]);
        assert!(surplus(parsed(Some("1"), None).unwrap(), Vec::<(Timestamp, i32)>::new(), at(1)).is_empty());
    }

    #[test]
    fn what_is_not_understood_deletes_nothing() {
        assert_eq!(parsed(None, None).unwrap(), Rule::default());
        for wrong in ["", "0", "-1", "many"] {
            assert!(parsed(Some(wrong), None).unwrap_err().contains(MOST), "{wrong}");
        }
        for wrong in ["", "d", "0d", "5", "5m", "-3d", "9999999999999999w", "3é"] {
            assert!(parsed(None, Some(wrong)).unwrap_err().contains("12h"), "{wrong}");
        }
    }
}

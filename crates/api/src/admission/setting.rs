//! Settings: what may be written into them.
//!
//! A value that no part of Croft could use is refused here, in the words of Harvester's webhook, whether or not Croft
//! acts on the setting: a client that gets a wrong value past one server would be surprised by the next.

mod backup_target;
mod networks;
mod values;

use croft_meta::{ApiError, FieldPath};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::HARVESTER;
use super::{Admission, Lookup};
use crate::harvester::settings;
use crate::view::text;

/// A change of one setting.
struct Proposal<'a> {
    name: &'a str,
    value: &'a str,
    lookup: &'a dyn Lookup,
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let name = text(admission.object, "metadata.name").to_owned();
    for field in ["value", "default"] {
        let value = text(admission.object, field);
        let before = admission.old.map(|old| text(old, field));
        if before.unwrap_or_default() == value {
            continue;
        }
        if name == settings::SERVER_VERSION && field == "value" && !admission.is_internal {
            return Err(refuse(HARVESTER, 405, "MethodNotAllowed", "server-version cannot be changed"));
        }
        // What Croft writes itself is derived from what was checked when it came in.
        let is_own = admission.is_internal && field == "value";
        let proposal = Proposal { name: &name, value, lookup: admission.lookup };
        if let Err(problem) = check(&proposal)
            && !is_own
        {
            let mut denial = Denial::by(HARVESTER);
            denial.invalid(&FieldPath::new(field), problem);
            return denial.finish();
        }
    }
    Ok(())
}

fn check(proposal: &Proposal<'_>) -> Result<(), String> {
    let Proposal { name, value, lookup } = *proposal;
    if value.is_empty() {
        return networks::check_removal(name, lookup);
    }
    match name {
        "backup-target" => backup_target::check(value, lookup),
        "storage-network" | "vm-migration-network" | "rwx-network" => networks::check(proposal),
        "http-proxy" => values::proxy(value, lookup),
        "csi-driver-config" => values::snapshot_classes(value, lookup),
        "upgrade-config" => values::upgrade(value, lookup),
        "kubevirt-migration" => values::migration(value, lookup),
        _ => values::check(name, value),
    }
}

/// JSON of a certain form.
fn json<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|error| format!("Invalid JSON: {error}"))
}

/// Settings are changed, never removed.
pub(super) fn admit_delete(setting: &Value, _: &dyn Lookup) -> Result<(), ApiError> {
    let name = text(setting, "metadata.name");
    if settings::default_of(name).is_none() {
        return Ok(());
    }
    Err(refuse(HARVESTER, 405, "MethodNotAllowed", &format!("Disallow delete setting name {name}")))
}

#[cfg(test)]
mod tests;

//! Fields that an apply wants to change and others own.

use croft_meta::ApiError;
use croft_meta::status::{Cause, Details};

use crate::fieldpath::path_string;
use crate::managed::{Managers, Operation};
use crate::typed::Comparison;
use croft_meta::field::go_quote;

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: &'static str,
    pub api_version: String,
    pub subresource: String,
    pub time: Option<String>,
    /// `.spec.containers[name="a"].image`.
    pub field: String,
}

impl Conflict {
    /// The manager as messages name it.
    fn subject(&self) -> String {
        let mut subject = go_quote(&self.manager);
        if !self.subresource.is_empty() {
            subject = format!("{subject} with subresource {}", go_quote(&self.subresource));
        }
        if self.operation == Operation::Update.as_str() {
            subject = format!("{subject} using {}", self.api_version);
        }
        subject
    }
}

/// The conflicts of a change with the managers of an object, by manager, then in the order of fields.
pub(super) fn find(managers: &Managers, changes: &Comparison) -> Vec<Conflict> {
    let mut owners: Vec<_> = managers.0.iter().collect();
    owners.sort_by_key(|m| m.identity());
    let mut changed = changes.modified.clone();
    changed.absorb(changes.added.clone());
    let mut conflicts = Vec::new();
    for owner in owners {
        owner.fields.intersection(&changed).for_each(&mut |path| {
            conflicts.push(Conflict {
                manager: owner.name.clone(),
                operation: owner.operation.as_str(),
                api_version: owner.api_version.clone(),
                subresource: owner.subresource.clone(),
                time: owner.time.clone(),
                field: path_string(path),
            });
        });
    }
    conflicts
}

/// The 409 that lists them.
pub fn conflict_status(conflicts: &[Conflict]) -> ApiError {
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.subject(), one.field),
        many => {
            let mut lines = Vec::with_capacity(many.len());
            let mut previous = None;
            for conflict in many {
                let subject = conflict.subject();
                if previous.as_ref() != Some(&subject) {
                    lines.push(format!("conflicts with {subject}:"));
                }
                previous = Some(subject);
                lines.push(format!("- {}", conflict.field));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let causes = conflicts
        .iter()
        .map(|conflict| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {}", conflict.subject()),
            field: conflict.field.clone(),
        })
        .collect();
    ApiError::new(409, "Conflict", message).with_details(Details { causes, ..Details::default() })
}

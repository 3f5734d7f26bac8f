//! What an instancetype and a machine cannot both say.

use std::fmt;

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub field: String,
    /// Where "conflicts with selected instance type" does not say it.
    pub message: Option<String>,
}

impl Conflict {
    pub(super) fn at(field: String) -> Self {
        Self { field, message: None }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => f.write_str(message),
            None => write!(f, "VM field(s) {} conflicts with selected instance type", self.field),
        }
    }
}

/// All of them; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    pub fn fields(&self) -> String {
        self.0.iter().map(|conflict| conflict.field.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => only.fmt(f),
            _ => write!(f, "VM field(s) {} conflicts with selected instance type", self.fields()),
        }
    }
}

impl std::error::Error for Conflicts {}

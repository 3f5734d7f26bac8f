//! Who is asking.

use std::collections::BTreeMap;

/// An authenticated (or anonymous) caller, as `authentication.k8s.io` UserInfo describes one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserInfo {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    pub(crate) fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        Self { name: name.into(), groups: groups.iter().map(ToString::to_string).collect(), ..Self::default() }
    }

    pub(crate) fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    /// Croft's own parts, calling in process.
    pub(crate) fn internal() -> Self {
        Self::new("system:apiserver", &["system:masters", "system:authenticated"])
    }

    pub(crate) fn is_member_of(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

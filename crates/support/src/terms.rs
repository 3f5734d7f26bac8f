//! How long a bundle may take, how long it stays, and what its file is called: as it says itself, or else the settings.

use std::time::Duration;

use croft_api::harvester::{Setting, SupportBundle};
use croft_reconcile::failure;
use jiff::Timestamp;
use kube::{Api, Client};

const TIMEOUT: &str = "support-bundle-timeout";
const NODE_TIMEOUT: &str = "support-bundle-node-collection-timeout";
const EXPIRATION: &str = "support-bundle-expiration";
const FILE_NAME: &str = "support-bundle-file-name";
/// In minutes, where the setting says nothing that can be used.
const DEFAULT_TIMEOUT: u64 = 50;
const DEFAULT_NODE_TIMEOUT: u64 = 30;
const DEFAULT_EXPIRATION: u64 = 30;
/// Longer than anybody waits for anything; sums with it do not overflow.
const MAX_MINUTES: u64 = 60 * 24 * 365;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// None for as long as it takes.
    pub(crate) whole: Option<Duration>,
    pub(crate) node: Duration,
    pub(crate) kept: Duration,
    /// Stands in the file's name instead of a random one.
    name: String,
}

impl Terms {
    pub(crate) async fn of(client: &Client, bundle: &SupportBundle) -> Result<Self, kube::Error> {
        let api: Api<Setting> = Api::all(client.clone());
        let mut found = Vec::new();
        for name in [TIMEOUT, NODE_TIMEOUT, EXPIRATION, FILE_NAME] {
            let setting = failure::absent_is_none(api.get(name).await)?;
            found.push(setting.map(|setting| setting.effective().trim().to_owned()).unwrap_or_default());
        }
        let [whole, node, kept, name] = found.as_slice() else { unreachable!("there are four") };
        Ok(Self::from(bundle, [whole, node, kept, name]))
    }

    fn from(bundle: &SupportBundle, [whole, node, kept, name]: [&str; 4]) -> Self {
        let spec = &bundle.spec;
        let minutes = |own: Option<u64>, setting: &str, default: u64| {
            own.unwrap_or_else(|| setting.parse().unwrap_or(default)).min(MAX_MINUTES)
        };
        // Here 0 stands for no limit, below for the default.
        let whole = minutes(spec.timeout, whole, DEFAULT_TIMEOUT);
        let or_default = |minutes: u64, default: u64| Duration::from_mins(if minutes == 0 { default } else { minutes });
        Self {
            whole: (whole > 0).then(|| Duration::from_mins(whole)),
            node: or_default(minutes(spec.node_timeout, node, DEFAULT_NODE_TIMEOUT), DEFAULT_NODE_TIMEOUT),
            kept: or_default(minutes(spec.expiration, kept, DEFAULT_EXPIRATION), DEFAULT_EXPIRATION),
            name: name.to_owned(),
        }
    }

    /// `supportbundle_<name or uid>_<time>`, without an ending.
    pub(crate) fn file_stem(&self, uid: &str, now: Timestamp) -> String {
        let name = if self.name.is_empty() { uid } else { &self.name };
        format!("supportbundle_{name}_{}", now.strftime("%Y-%m-%dT%H-%M-%SZ"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_counts_before_the_settings_and_these_before_nothing() {
        let mut bundle = SupportBundle::default();
        let terms = Terms::from(&bundle, ["50", "30", "", "my-site"]);
        assert_eq!((terms.whole, terms.node), (Some(Duration::from_mins(50)), Duration::from_mins(30)));
        assert_eq!(terms.kept, Duration::from_mins(30));
        assert_eq!(terms.file_stem("u", Timestamp::UNIX_EPOCH), "supportbundle_my-site_1970-01-01T00-00-00Z");
        bundle.spec.timeout = Some(0);
        bundle.spec.expiration = Some(7);
        let terms = Terms::from(&bundle, ["50", "0", "30", ""]);
        assert_eq!((terms.whole, terms.node), (None, Duration::from_mins(30)));
        assert_eq!(terms.kept, Duration::from_mins(7));
        assert_eq!(terms.file_stem("u", Timestamp::UNIX_EPOCH), "supportbundle_u_1970-01-01T00-00-00Z");
    }
}

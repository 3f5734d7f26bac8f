//! Where backups go: the value of the setting `backup-target`, and the Secret that its keys are moved to.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_meta::{ApiError, object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::BackupPlace;

pub const SETTING: &str = "backup-target";
/// Where Longhorn looks for it, and so do clients.
pub const SECRET_NAMESPACE: &str = "longhorn-system";
pub const SECRET: &str = "harvester-backup-target-secret";
/// The keys that backups are encrypted with, in the same namespace. Without it they are not.
pub const ENCRYPTION_SECRET: &str = "croft-backup-encryption";

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupTarget {
    /// `s3`, `nfs`, our own `directory`, or empty for none.
    #[serde(rename = "type")]
    pub ty: String,
    pub endpoint: String,
    pub access_key_id: String,
    pub secret_access_key: String,
    pub bucket_name: String,
    pub bucket_region: String,
    pub cert: String,
    pub virtual_hosted_style: bool,
    pub refresh_interval_in_seconds: i64,
}

impl std::fmt::Debug for BackupTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupTarget").field("ty", &self.ty).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl BackupTarget {
    pub fn has_keys(&self) -> bool {
        !self.access_key_id.is_empty() || !self.secret_access_key.is_empty()
    }

    pub fn is_set(&self) -> bool {
        !self.ty.is_empty()
    }

    /// As Longhorn writes it. How to reach a bucket is in the Secret.
    pub fn url(&self) -> String {
        match self.ty.as_str() {
            "" => String::new(),
            "s3" => format!("s3://{}@{}/", self.bucket_name, self.bucket_region),
            _ => self.endpoint.clone(),
        }
    }

    /// What backups say of where they are.
    pub fn place(&self) -> BackupPlace {
        BackupPlace {
            endpoint: self.endpoint.clone(),
            bucket_name: self.bucket_name.clone(),
            bucket_region: self.bucket_region.clone(),
        }
    }

    /// The entries of the Secret.
    pub fn secret(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", self.access_key_id.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_access_key.clone()),
            ("AWS_ENDPOINTS", self.endpoint.clone()),
            ("AWS_CERT", self.cert.clone()),
            ("VIRTUAL_HOSTED_STYLE", self.virtual_hosted_style.to_string()),
        ]
    }

    /// The same beside what is kept already: keys that are not given again stay as they were.
    pub fn secret_with(&self, kept: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut secret = kept.clone();
        for (name, value) in self.secret() {
            let is_key = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&name);
            if !is_key || self.has_keys() {
                secret.insert(name.to_owned(), value);
            }
        }
        secret
    }

    /// The same without what nobody is to read.
    #[must_use]
    pub fn without_keys(&self) -> Self {
        Self { access_key_id: String::new(), secret_access_key: String::new(), ..self.clone() }
    }
}

/// What must be tried before the setting is stored; `None` for other settings, and for what was tried before.
pub fn to_try(new: &Value, old: Option<&Value>) -> Option<BackupTarget> {
    let value = |setting: &Value| setting["value"].as_str().unwrap_or_default().to_owned();
    if object::name(new) != SETTING || old.map(value) == Some(value(new)) {
        return None;
    }
    let wanted: BackupTarget = serde_json::from_str(&value(new)).unwrap_or_default();
    Some(wanted).filter(BackupTarget::is_set)
}

/// Of a target that was tried and does not work.
pub fn refusal(why: &str) -> ApiError {
    crate::admission::refuse_setting(&format!("value: {why}"))
}

/// What is in the Secret that the keys were moved to.
pub fn kept_in(secret: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| {
        let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    secret["data"].as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_not_given_are_those_that_were_kept() {
        let kept: BTreeMap<String, String> =
            [("AWS_ACCESS_KEY_ID", "old"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_ENDPOINTS", "http://a")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        let target = |id: &str| BackupTarget {
            ty: "s3".to_owned(),
            endpoint: "http://b".to_owned(),
            access_key_id: id.to_owned(),
            ..BackupTarget::default()
        };
        let same = target("").secret_with(&kept);
        assert_eq!((same["AWS_ACCESS_KEY_ID"].as_str(), same["AWS_ENDPOINTS"].as_str()), ("old", "http://b"));
        let other = target("new").secret_with(&kept);
        assert_eq!((other["AWS_ACCESS_KEY_ID"].as_str(), other["AWS_SECRET_ACCESS_KEY"].as_str()), ("new", ""));
    }

    #[test]
    fn keys_go_to_the_secret_and_nowhere_else() {
        let target: BackupTarget = serde_json::from_str(
            r#"{"type":"s3","accessKeyId":"id","secretAccessKey":"key","bucketName":"b","bucketRegion":"r"}"#,
        )
        .unwrap();
        assert!(target.has_keys());
        assert!(target.secret().contains(&("AWS_SECRET_ACCESS_KEY", "key".to_owned())));
        let kept = serde_json::to_string(&target.without_keys()).unwrap();
        assert!(
            !kept.contains("\"id\"") && !kept.contains("\"key\"") && kept.contains("\"bucketName\":\"b\""),
            "{kept}"
        );
        assert!(!format!("{target:?}").contains("key\""));
    }

    #[test]
    fn a_target_has_an_address() {
        let url = |value: &str| serde_json::from_str::<BackupTarget>(value).unwrap().url();
        assert_eq!(url(r#"{"type":"s3","endpoint":"https://s3","bucketName":"b","bucketRegion":"r"}"#), "s3://b@r/");
        assert_eq!(url(r#"{"type":"nfs","endpoint":"nfs://h:/p"}"#), "nfs://h:/p");
        assert_eq!(url(r#"{"type":"directory","endpoint":"file:///srv/b"}"#), "file:///srv/b");
        assert_eq!(url("{}"), "");
    }
}

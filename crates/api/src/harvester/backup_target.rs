//! Where backups go: the value of the setting `backup-target`, and the Secret that its keys are moved to.

use serde::{Deserialize, Serialize};

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

    /// The same without what nobody is to read.
    #[must_use]
    pub fn without_keys(&self) -> Self {
        Self { access_key_id: String::new(), secret_access_key: String::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

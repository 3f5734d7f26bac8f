//! The keys of a cluster: what new backups are encrypted with, and all that is tried when one is read.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::harvester::VmBackup;
use crate::read::OpenBackup;
use crate::seal::Secret;
use crate::store::BackupStore;

/// The entry that new backups are encrypted with. It is called like the one of Harvester's Secrets for encrypted volumes.
const CURRENT: &str = "CRYPTO_KEY_VALUE";

#[derive(Clone, Debug, Default)]
pub struct Keys {
    current: Option<Secret>,
    older: Vec<Secret>,
}

impl Keys {
    /// What a Secret holds. Entries beside the current one are keys that were used before.
    pub fn from_secret(entries: &BTreeMap<String, Vec<u8>>) -> Result<Self, Error> {
        let mut keys = Self::default();
        for (name, value) in entries {
            let key = Secret::new(value.clone()).map_err(Error::Key)?;
            if name == CURRENT {
                keys.current = Some(key);
            } else {
                keys.older.push(key);
            }
        }
        Ok(keys)
    }

    /// One that somebody says, for writing and reading.
    pub fn only(key: Secret) -> Self {
        Self { current: Some(key), older: Vec::new() }
    }

    pub fn current(&self) -> Option<&Secret> {
        self.current.as_ref()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Secret> {
        self.current.iter().chain(&self.older)
    }
}

impl BackupStore {
    /// Opens a backup with whichever key it was made with.
    pub async fn open_with(&self, volume: &str, backup: &str, keys: &Keys) -> Result<OpenBackup, Error> {
        let mut refused = None;
        for key in keys.all() {
            match self.open(volume, backup, Some(key)).await {
                Err(error @ Error::WrongKey { .. }) => refused = refused.or(Some(error)),
                other => return other,
            }
        }
        match refused {
            Some(error) => Err(error),
            None => self.open(volume, backup, None).await,
        }
    }
}

impl VmBackup {
    /// Gives the secrets back that were sealed with one of these keys.
    pub fn unseal_with(self, keys: &Keys) -> Result<Self, Error> {
        if self.croft_sealed_secrets.is_empty() {
            return Ok(self);
        }
        let opened = keys.all().find_map(|key| self.clone().unseal(Some(key)).ok());
        opened.ok_or(Error::SecretsSealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harvester::SecretBackup;
    use crate::store::Owner;
    use crate::target::Directory;

    fn entries(all: &[(&str, u8)]) -> BTreeMap<String, Vec<u8>> {
        all.iter().map(|(name, byte)| ((*name).to_owned(), vec![*byte; 32])).collect()
    }

    #[test]
    fn one_key_writes_and_all_of_them_read() {
        let keys = Keys::from_secret(&entries(&[(CURRENT, 1), ("last-year", 2)])).unwrap();
        assert!(keys.current().is_some() && keys.all().count() == 2);
        let old = Keys::from_secret(&entries(&[("last-year", 2)])).unwrap();
        assert!(old.current().is_none(), "nothing is encrypted any more");
        let short = [(CURRENT.to_owned(), b"short".to_vec())].into();
        assert!(matches!(Keys::from_secret(&short), Err(Error::Key(_))));
    }

    #[tokio::test]
    async fn secrets_are_read_with_the_key_they_were_sealed_with() {
        let dir = tempfile::tempdir().unwrap();
        let store = BackupStore::new(std::sync::Arc::new(Directory::new(dir.path())), Owner::new("test").unwrap());
        let secret = SecretBackup { name: "s".into(), data: [("k".to_owned(), "dg==".to_owned())].into() };
        let plain = VmBackup {
            name: "b".into(),
            namespace: "n".into(),
            secret_backups: vec![secret.clone()],
            ..VmBackup::default()
        };
        let old = Keys::from_secret(&entries(&[(CURRENT, 2)])).unwrap();
        store.save_vm_backup(&plain, old.current()).await.unwrap();
        let kept = store.vm_backup("n", "b").await.unwrap().unwrap();
        assert!(kept.secret_backups.is_empty());
        let now = Keys::from_secret(&entries(&[(CURRENT, 1), ("last-year", 2)])).unwrap();
        assert_eq!(kept.clone().unseal_with(&now).unwrap().secret_backups, [secret]);
        for wrong in [Keys::default(), Keys::from_secret(&entries(&[(CURRENT, 3)])).unwrap()] {
            assert!(matches!(kept.clone().unseal_with(&wrong), Err(Error::SecretsSealed)));
        }
    }
}

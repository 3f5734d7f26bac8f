//! What a machine keeps besides its disks, its firmware's variables and its TPM: found with what was kept of it, and given to
//! what is made of that. The node that runs the machine reads and writes them.

use std::collections::BTreeMap;

use croft_api::harvester::{SecretBackup, VirtualMachineBackupStatus};
use croft_api::machine_state::{self, MemorySource, Origin, SECRET_TYPE, StateSource, is_secret_name, secret_name};
use croft_api::snapshot::Stillness;
use croft_reconcile::failure::{absent_is_none, is_not_found, made_or_there};
use croft_reconcile::{Error, Key};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DeleteParams, Patch};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{Keeper, not_yet};
use crate::patch::{as_harvester, made_by_harvester};

type Data = BTreeMap<String, ByteString>;

/// Why a machine cannot be kept whole: what it has besides its disks is kept by who keeps the disks.
pub(super) fn cannot_be_kept(template: &Value, has_disks: bool) -> Option<&'static str> {
    let spec = serde_json::from_value(template.clone()).unwrap_or_default();
    (!has_disks && machine_state::is_kept(&spec))
        .then_some("its firmware's variables and its TPM are kept with its disks, and it has none on a claim")
}

impl Keeper {
    /// What was kept with the snapshots of this set.
    pub(super) async fn kept_state(&self, namespace: &str, set: &str) -> Result<Option<Data>, Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = absent_is_none(api.get(&secret_name(set)).await)?;
        Ok(found.filter(|secret| secret.type_.as_deref() == Some(SECRET_TYPE)).and_then(|secret| secret.data))
    }

    /// What is in the target has it among the machine's Secrets.
    pub(super) async fn add_state(
        &self,
        namespace: &str,
        set: &str,
        status: &mut VirtualMachineBackupStatus,
    ) -> Result<(), Error> {
        let name = secret_name(set);
        if status.secret_backups.iter().any(|secret| secret.name == name) {
            return Ok(());
        }
        if let Some(data) = self.kept_state(namespace, set).await? {
            let data = serde_json::to_value(data).unwrap_or_default();
            let data = serde_json::from_value(data).unwrap_or_default();
            status.secret_backups.push(SecretBackup { name, data });
        }
        Ok(())
    }

    /// A copy for the machine that is restored, which does not go with what was kept.
    pub(super) async fn bring_state(
        &self,
        namespace: &str,
        owner: Option<OwnerReference>,
        data: Option<Data>,
    ) -> Result<Option<StateSource>, Error> {
        let (Some(owner), Some(data)) = (owner, data) else { return Ok(None) };
        let (id, name) = (owner.uid.clone(), secret_name(&owner.uid));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(data),
            ..Secret::default()
        };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match made_or_there(api.create(&made_by_harvester(), &secret).await) {
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => {
                not_yet(format!("the state of firmware and TPM: {}", refused.message))?;
                Ok(None)
            }
            made => made.map(|()| Some(StateSource { id, origin: Origin::Secret(name) })).map_err(Error::from),
        }
    }

    /// The memory that was kept with the first of the disks.
    pub(super) fn memory_for(&self, namespace: &str, restore: &str, first: Option<&str>) -> Option<MemorySource> {
        let snapshot = first?;
        let taken = self.snapshots.get(&Key::new(namespace, snapshot))?;
        let has_memory = Stillness::of(&taken.metadata).is_some_and(|guest| guest.has_memory);
        has_memory.then(|| MemorySource { id: restore.to_owned(), snapshot: snapshot.to_owned() })
    }

    /// From now on it goes with the machine.
    pub(super) async fn give_state_to(&self, machine: &DynamicObject) -> Result<(), Error> {
        let Some(StateSource { origin: Origin::Secret(name), .. }) =
            StateSource::of_template(&machine.data["spec"]["template"])
        else {
            return Ok(());
        };
        let owner = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": machine.metadata.name, "uid": machine.metadata.uid,
        });
        let change = Patch::Merge(json!({ "metadata": { "ownerReferences": [owner] } }));
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        absent_is_none(api.patch(&name, &as_harvester(), &change).await)?;
        Ok(())
    }

    /// The copy of an earlier restore, once the machine does not name it any more.
    pub(super) async fn drop_state(&self, before: &Value, now: &DynamicObject) -> Result<(), Error> {
        let old = StateSource::of_template(&before["spec"]["template"]);
        if old == StateSource::of_template(&now.data["spec"]["template"]) {
            return Ok(());
        }
        let Some(StateSource { origin: Origin::Secret(name), .. }) = old else { return Ok(()) };
        let api: Api<Secret> =
            Api::namespaced(self.client.clone(), now.metadata.namespace.as_deref().unwrap_or_default());
        match api.delete(&name, &DeleteParams::default()).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// What a backup has of it, among the machine's Secrets.
pub(super) fn in_secrets(secrets: &[SecretBackup]) -> Option<Data> {
    let found = secrets.iter().find(|secret| is_secret_name(&secret.name))?;
    let data = serde_json::to_value(&found.data).unwrap_or_default();
    serde_json::from_value(data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_claims_cannot_be_kept_with_its_tpm() {
        let with_tpm = json!({"domain": {"devices": {"tpm": {"persistent": true}}}});
        assert!(cannot_be_kept(&with_tpm, false).is_some() && cannot_be_kept(&with_tpm, true).is_none());
        assert!(cannot_be_kept(&json!({"domain": {"devices": {"tpm": {}}}}), false).is_none());
    }

    #[test]
    fn the_state_is_found_among_the_secrets_of_a_backup() {
        let secret = |name: &str| SecretBackup {
            name: name.to_owned(),
            data: [("nvram.fd.gz".to_owned(), "eA==".to_owned())].into(),
        };
        let found = in_secrets(&[secret("seed"), secret("machine-state-1")]).unwrap();
        assert_eq!(found["nvram.fd.gz"], ByteString(b"x".to_vec()));
        assert!(in_secrets(&[secret("seed")]).is_none());
    }
}

//! Starting: the instance of a machine is made.

use std::sync::Arc;

use croft_api::kubevirt::{
    INSTANCE_FINALIZER, VirtualMachineInstance, VirtualMachineInstanceCondition, condition, run_strategy, vmi_from_vm,
};
use croft_reconcile::failure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;

use super::{FAILED_CREATE, LOOK_AGAIN, Turn};
use crate::claims::Templates;
use crate::patch;
use crate::virtual_machine::conditions::Restart;
use crate::virtual_machine::expectations::Expected;
use crate::virtual_machine::revisions::revision_name;
use crate::virtual_machine::run_strategy::RunStrategy;
use crate::virtual_machine::sizes::Sizes;
use crate::virtual_machine::view::{status_mut, this_second};

/// Shown to users until they dismiss it.
const INSUFFICIENT_QUOTA: &str = "harvesterhci.io/insufficient-resource-quota";

impl Turn<'_> {
    pub(super) async fn start(&mut self, strategy: RunStrategy, sizes: &Sizes) -> Result<(), kube::Error> {
        let templates = &self.machine.spec.data_volume_templates;
        match self.machines.inventory.claims.templates(&self.key.namespace, templates) {
            Templates::Ready => {}
            Templates::Waiting => return self.settle_metadata(strategy).await,
            Templates::Failed(why) => {
                self.machines.events.warning(&self.machine, "FailedDataVolumeImport", &why);
                return self.settle_metadata(strategy).await;
            }
        }
        if self.is_taken {
            let text = format!("another machine's instance is still named {}", self.key.name);
            self.fail(FAILED_CREATE, format!("Failure while starting VMI: {text}"));
            return self.settle_metadata(strategy).await;
        }
        let instance = match vmi_from_vm(&self.machine, sizes.chosen()) {
            Ok(instance) => self.prepared(instance),
            Err(conflicts) => {
                let text =
                    format!("Error creating virtual machine instance: Failed to apply instancetype: {conflicts}");
                self.machines.events.warning(&self.machine, FAILED_CREATE, &text);
                self.fail(FAILED_CREATE, format!("Failure while starting VMI: {conflicts}"));
                return self.settle_metadata(strategy).await;
            }
        };
        Box::pin(self.create(strategy, &instance)).await
    }

    fn prepared(&self, mut instance: VirtualMachineInstance) -> VirtualMachineInstance {
        // Its node has to clean up before it goes.
        let finalizers = instance.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|one| one == INSTANCE_FINALIZER) {
            finalizers.push(INSTANCE_FINALIZER.to_owned());
        }
        let status = status_mut(&mut instance);
        status.virtual_machine_revision_name = Some(revision_name(&self.machine));
        status.conditions = vec![VirtualMachineInstanceCondition {
            type_: condition::READY.to_owned(),
            status: "False".to_owned(),
            reason: Some("PodNotExists".to_owned()),
            message: Some("virt-launcher pod has not yet been scheduled".to_owned()),
            last_transition_time: Some(Time(this_second())),
            last_probe_time: None,
        }];
        instance
    }

    /// The three writes do not depend on each other, and each may be made again after a crash.
    async fn create(&mut self, strategy: RunStrategy, instance: &VirtualMachineInstance) -> Result<(), kube::Error> {
        self.machines.expectations.expect(&self.key, Expected::Creation);
        let settle = patch::guarded(&self.machine, &self.settled(strategy));
        let (machine_api, instance_api, params) = (self.machine_api(), self.instance_api(), patch::post_params());
        let settled = async {
            let Some(patch) = &settle else { return Ok(None) };
            machine_api.patch(&self.key.name, &patch::patch_params(), &Patch::Merge(patch)).await.map(Some)
        };
        let (settled, kept, created) =
            tokio::join!(settled, self.machines.revisions.keep(&self.machine), instance_api.create(&params, instance));
        let events = &self.machines.events;
        let mut over_quota = None;
        match created {
            Ok(created) => {
                let text = "Started the virtual machine by creating the new virtual machine instance";
                events.normal(&self.machine, "SuccessfulCreate", &format!("{text} {}", self.key.name));
                self.machines.keys.send(self.key.clone(), LOOK_AGAIN).await;
                self.instance = Some(Arc::new(created));
                self.restart = Restart::NotRequired;
            }
            Err(error) => {
                self.machines.expectations.forget(&self.key);
                let why = failure::message(&error);
                if is_over_quota(&error) {
                    over_quota = Some(why.clone());
                }
                // One that is there was made a moment ago; the watch will show it.
                if !failure::is_conflict(&error) && !failure::is_namespace_terminating(&error) {
                    let text = format!("Error creating virtual machine instance: {why}");
                    events.warning(&self.machine, FAILED_CREATE, &text);
                    self.fail(FAILED_CREATE, format!("Failure while starting VMI: {why}"));
                } else {
                    self.retry = Some(why);
                }
            }
        }
        if let Some(settled) = settled? {
            self.took(settled);
        }
        if let Some(why) = over_quota {
            Box::pin(self.halt_for_quota(&why)).await?;
        }
        kept
    }

    /// As in Harvester: a machine for which its namespace has no room does not wait for it, but is halted and told.
    async fn halt_for_quota(&mut self, why: &str) -> Result<(), kube::Error> {
        let mut halted = self.machine.clone();
        let annotations = halted.metadata.annotations.get_or_insert_default();
        annotations.insert(INSUFFICIENT_QUOTA.to_owned(), why.to_owned());
        if halted.spec.running.is_some() {
            halted.spec.running = Some(false);
        } else {
            halted.spec.run_strategy = Some(run_strategy::HALTED.to_owned());
        }
        self.retry = None;
        self.patch_machine(halted).await
    }
}

/// The words are those of Kubernetes' quotas and limit ranges.
fn is_over_quota(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let words = ["exceeded quota", "failed quota", "usage per"];
    status.code == 403 && words.iter().any(|words| status.message.contains(words))
}

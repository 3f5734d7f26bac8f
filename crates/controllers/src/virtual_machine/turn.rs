//! One look at a machine: everything that is to be done about it now, and then its status.

mod start;

use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::{
    ANNOTATION_MACHINE_GENERATION, MACHINE_FINALIZER, VirtualMachine, VirtualMachineInstance,
    VirtualMachineInstanceTemplateSpec, VirtualMachineStatus, run_strategy,
};
use croft_reconcile::{Error, Key, failure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};

use super::conditions::{Failure, Restart};
use super::expectations::Expected;
use super::live_update::{self, Given, Started, Updated};
use super::run_strategy::{RunStrategy, Step, next_step};
use super::sizes::{self, SizeError, Sizes};
use super::status::{self, Known};
use super::view::{
    annotation, controller, has_finalizer, is_being_deleted, is_final, name, namespace, status_of, this_second, uid,
};
use super::{Machines, memory_dump};
use crate::claims::{Disks, Templates};
use crate::{patch, volume_claims};

/// The strategy that a machine had before it was halted; Harvester starts it with that one.
const LAST_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";
/// Somebody wants to keep what belongs to the machine.
const ORPHAN: &str = "orphan";
/// When nothing happens, what was expected is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(11);

const FAILED_CREATE: &str = "FailedCreate";
const FAILED_DELETE: &str = "FailedDelete";

pub(super) async fn take(machines: &Machines, key: Key, machine: &VirtualMachine) -> Result<(), Error> {
    let there = machines.inventory.instances.get(&key);
    let (instance, foreign) = match there {
        Some(one) if is_its(machine, &one) => (Some(one), None),
        Some(one) if controller(&one.metadata).is_none() && !is_being_deleted(&machine.metadata) => {
            return adopt(machines, machine, &one).await;
        }
        other => (None, other),
    };
    let mut turn = Turn {
        machines,
        key,
        machine: machine.clone(),
        stored: machine.status.clone().unwrap_or_default(),
        strategy: RunStrategy::of(machine).ok(),
        instance,
        is_taken: foreign.is_some(),
        wants_start: false,
        failure: None,
        restart: Restart::Unknown,
        retry: None,
    };
    let result = Box::pin(turn.act()).await;
    if let Err(error) = &result {
        turn.note(error);
    }
    turn.write_status().await?;
    turn.release_instance().await?;
    result?;
    match turn.retry {
        Some(why) => Err(Error::NotYet(why)),
        None => Ok(()),
    }
}

/// Whether the instance was made by this machine, not by another of the same name.
fn is_its(machine: &VirtualMachine, instance: &VirtualMachineInstance) -> bool {
    controller(&instance.metadata).is_some_and(|owner| owner.uid == uid(&machine.metadata))
}

/// An instance that was made by hand becomes that of the machine of its name.
async fn adopt(machines: &Machines, machine: &VirtualMachine, instance: &VirtualMachineInstance) -> Result<(), Error> {
    let mut adopted = instance.clone();
    adopted.metadata.owner_references.get_or_insert_default().push(super::revisions::owner(machine));
    if !has_finalizer(&adopted.metadata, MACHINE_FINALIZER) {
        adopted.metadata.finalizers.get_or_insert_default().push(MACHINE_FINALIZER.to_owned());
    }
    patch_instance(machines, instance, &adopted).await?;
    Ok(())
}

/// Writes what changed; nothing if nothing did.
async fn patch_instance(
    machines: &Machines,
    old: &VirtualMachineInstance,
    new: &VirtualMachineInstance,
) -> Result<Option<VirtualMachineInstance>, kube::Error> {
    let Some(patch) = patch::guarded(old, new) else { return Ok(None) };
    let api: Api<VirtualMachineInstance> = Api::namespaced(machines.client.clone(), namespace(&old.metadata));
    let patched = api.patch(name(&old.metadata), &patch::patch_params(), &Patch::Merge(&patch)).await?;
    machines.inventory.instances.wrote(patched.clone());
    Ok(Some(patched))
}

struct Turn<'a> {
    machines: &'a Machines,
    key: Key,
    machine: VirtualMachine,
    /// Its status as the API server has it.
    stored: VirtualMachineStatus,
    strategy: Option<RunStrategy>,
    instance: Option<Arc<VirtualMachineInstance>>,
    /// Another machine's instance has the name.
    is_taken: bool,
    wants_start: bool,
    failure: Option<Failure>,
    restart: Restart,
    /// Why it is to be looked at again although nothing went wrong on the way.
    retry: Option<String>,
}

impl Turn<'_> {
    /// What fails here becomes a condition, and is tried again.
    fn fail(&mut self, reason: &'static str, message: String) {
        self.retry = Some(message.clone());
        self.failure = Some(Failure::new(reason, message));
    }

    /// A refusal of the API server that users should see. Being too late is none.
    fn note(&mut self, error: &kube::Error) {
        let is_late = failure::is_conflict(error) || failure::is_not_found(error);
        if !is_late && matches!(error, kube::Error::Api(_)) && self.failure.is_none() {
            self.failure = Some(Failure::new("FailedUpdateError", failure::message(error)));
        }
    }

    async fn act(&mut self) -> Result<(), kube::Error> {
        if is_being_deleted(&self.machine.metadata) {
            return self.end().await;
        }
        let Some(strategy) = self.strategy else {
            let message = RunStrategy::of(&self.machine).err().map(|error| error.to_string()).unwrap_or_default();
            self.failure = Some(Failure::new(FAILED_CREATE, format!("Error fetching RunStrategy: {message}")));
            return Ok(());
        };
        let sizes = match sizes::find(&self.machines.client, &self.machine).await {
            Ok(sizes) => sizes,
            Err(SizeError::Api(error)) => return Err(error),
            Err(SizeError::Failure(failure)) => {
                self.machines.events.warning(&self.machine, failure.reason, &failure.message);
                self.fail(failure.reason, failure.message);
                return self.settle_metadata(strategy).await;
            }
        };
        let status = self.machine.status.get_or_insert_default();
        status.instancetype_ref.clone_from(&sizes.instancetype_ref);
        status.preference_ref.clone_from(&sizes.preference_ref);
        if self.machines.expectations.get(&self.key).is_some() {
            self.machines.keys.send(self.key.clone(), LOOK_AGAIN).await;
            return self.settle_metadata(strategy).await;
        }
        match next_step(strategy, &self.machine, self.instance.as_deref(), Timestamp::now()) {
            Step::Start => return Box::pin(self.start(strategy, &sizes)).await,
            Step::WaitUntil(time) => self.wait_until(time).await,
            Step::Leave => {}
            Step::SwitchOn => return self.switch_on().await,
            Step::Stop { and_start } => {
                self.settle_metadata(strategy).await?;
                self.wants_start = and_start;
                return self.stop().await;
            }
        }
        self.settle_metadata(strategy).await?;
        Box::pin(self.update_live(&sizes)).await
    }

    async fn wait_until(&self, time: Timestamp) {
        let wait = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
        self.machines.keys.send(self.key.clone(), wait).await;
    }

    /// A machine that goes takes its instance with it, unless that is to be kept.
    async fn end(&mut self) -> Result<(), kube::Error> {
        match &self.instance {
            Some(_) if !has_finalizer(&self.machine.metadata, ORPHAN) => {
                if self.machines.expectations.get(&self.key).is_none() {
                    self.stop().await?;
                }
                Ok(())
            }
            _ => {
                volume_claims::release(&self.machines.client, &self.machines.inventory, &self.machine).await?;
                let mut released = self.machine.clone();
                released.metadata.finalizers.iter_mut().for_each(|list| list.retain(|one| one != MACHINE_FINALIZER));
                self.patch_machine(released).await
            }
        }
    }

    /// The finalizer, and the strategy that the machine would be started with if it were halted now.
    fn settled(&self, strategy: RunStrategy) -> VirtualMachine {
        let mut settled = self.machine.clone();
        if !has_finalizer(&settled.metadata, MACHINE_FINALIZER) {
            settled.metadata.finalizers.get_or_insert_default().push(MACHINE_FINALIZER.to_owned());
        }
        let is_chosen = self.machine.spec.run_strategy.is_some() && strategy != RunStrategy::Halted;
        if is_chosen && annotation(&settled.metadata, LAST_STRATEGY) != Some(strategy.text()) {
            let annotations = settled.metadata.annotations.get_or_insert_default();
            annotations.insert(LAST_STRATEGY.to_owned(), strategy.text().to_owned());
        }
        settled
    }

    async fn settle_metadata(&mut self, strategy: RunStrategy) -> Result<(), kube::Error> {
        self.patch_machine(self.settled(strategy)).await
    }

    /// Writes what changed outside the status.
    async fn patch_machine(&mut self, new: VirtualMachine) -> Result<(), kube::Error> {
        let Some(patch) = patch::guarded(&self.machine, &new) else { return Ok(()) };
        self.apply_machine(&patch).await
    }

    async fn apply_machine(&mut self, patch: &Value) -> Result<(), kube::Error> {
        let api = self.machine_api();
        let patched = api.patch(&self.key.name, &patch::patch_params(), &Patch::Merge(patch)).await;
        let Some(patched) = failure::absent_is_none(patched)? else { return Ok(()) };
        self.took(patched);
        Ok(())
    }

    /// Goes on with what was stored; the status that is being worked out is not stored yet.
    fn took(&mut self, stored: VirtualMachine) {
        self.machines.inventory.machines.wrote(stored.clone());
        let status = self.machine.status.take();
        self.stored = stored.status.clone().unwrap_or_default();
        self.machine = stored;
        if let Some(status) = status {
            let stored = self.machine.status.get_or_insert_default();
            stored.instancetype_ref = status.instancetype_ref;
            stored.preference_ref = status.preference_ref;
        }
    }

    fn machine_api(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.machines.client.clone(), &self.key.namespace)
    }

    fn instance_api(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.machines.client.clone(), &self.key.namespace)
    }

    /// A halted machine was asked to start: from now on it is to run.
    async fn switch_on(&mut self) -> Result<(), kube::Error> {
        let mut on = self.machine.clone();
        if on.spec.running.is_some() {
            on.spec.running = Some(true);
        } else {
            on.spec.run_strategy = Some(run_strategy::ALWAYS.to_owned());
        }
        self.patch_machine(on).await
    }

    /// Deletes the instance; its node shuts the guest down in its own time.
    async fn stop(&mut self) -> Result<(), kube::Error> {
        let Some(instance) = self.instance.clone().filter(|one| !is_being_deleted(&one.metadata)) else {
            return Ok(());
        };
        let instance_uid = uid(&instance.metadata).to_owned();
        self.machines.expectations.expect(&self.key, Expected::Deletion(instance_uid.clone()));
        if self.wants_start {
            // Were it deleted first and this process ended here, nobody would know that another is due.
            self.write_status().await.map_err(|error| {
                self.machines.expectations.forget(&self.key);
                match error {
                    Error::Api(error) => error,
                    Error::NotYet(why) => kube::Error::Service(why.into()),
                }
            })?;
            self.wants_start = false;
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(instance_uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let events = &self.machines.events;
        match failure::absent_is_none(self.instance_api().delete(&self.key.name, &params).await) {
            Ok(_) => {
                let text = "Stopped the virtual machine by deleting the virtual machine instance";
                events.normal(&self.machine, "SuccessfulDelete", &format!("{text} {instance_uid}"));
                self.restart = Restart::NotRequired;
                self.machines.keys.send(self.key.clone(), LOOK_AGAIN).await;
                Ok(())
            }
            Err(error) => {
                self.machines.expectations.forget(&self.key);
                let why = failure::message(&error);
                let text = format!("Error deleting virtual machine instance {}: {why}", self.key.name);
                events.warning(&self.machine, FAILED_DELETE, &text);
                let text = format!("Failure attempting to delete VMI: {why}");
                self.failure = Some(Failure::new(FAILED_DELETE, text));
                Err(error)
            }
        }
    }

    /// Brings changes of the machine to its running guest.
    async fn update_live(&mut self, sizes: &Sizes) -> Result<(), kube::Error> {
        let mut wanted = self.machine.spec.template.clone();
        let expanded = croft_api::instancetype::apply(
            sizes.chosen(),
            &mut wanted.spec,
            &mut wanted.metadata,
            "spec.template.spec",
        );
        if let Err(conflicts) = expanded {
            self.fail(FAILED_CREATE, conflicts.to_string());
            return Ok(());
        }
        let before = self.read_started().await?;
        let started = match &before {
            Before::Same => Started::Same,
            Before::From(started) => Started::From(&started.template.spec),
            Before::Unknown => Started::Unknown,
        };
        let given = Given { machine: &self.machine, instance: self.instance.as_deref(), wanted: &wanted.spec, started };
        let Updated { machine, mut instance, restart, failure } = live_update::update(given);
        self.restart = restart;
        if let Some(failure) = failure {
            self.fail(failure.reason, failure.message);
        }
        if let (Some(instance), Before::From(started)) = (&mut instance, &before)
            && started.is_template_same
        {
            let generation = self.machine.metadata.generation.unwrap_or_default().to_string();
            let annotations = instance.metadata.annotations.get_or_insert_default();
            annotations.insert(ANNOTATION_MACHINE_GENERATION.to_owned(), generation);
        }
        if let Some((old, new)) = self.instance.clone().zip(instance)
            && *old != new
        {
            let patched = patch_instance(self.machines, &old, &new).await?;
            self.instance = patched.map(Arc::new).or(self.instance.take());
        }
        if machine.spec != self.machine.spec {
            self.patch_machine(machine).await?;
        }
        self.annotate_dump().await
    }

    async fn read_started(&self) -> Result<Before, kube::Error> {
        let Some(instance) = &self.instance else { return Ok(Before::Same) };
        let generation = self.machine.metadata.generation.unwrap_or_default().to_string();
        if annotation(&instance.metadata, ANNOTATION_MACHINE_GENERATION) == Some(&generation) {
            return Ok(Before::Same);
        }
        let revision = instance.status.as_ref().and_then(|status| status.virtual_machine_revision_name.as_deref());
        let Some(revision) = revision else { return Ok(Before::Unknown) };
        let Some(spec) = self.machines.revisions.read(&self.key.namespace, revision).await? else {
            return Ok(Before::Unknown);
        };
        let sizes = sizes::find_started(&self.machines.client, &self.key.namespace, &spec).await?;
        let Some(sizes) = sizes else { return Ok(Before::Unknown) };
        let is_template_same = spec.template == self.machine.spec.template;
        let mut template = spec.template;
        let chosen = sizes.chosen();
        match croft_api::instancetype::apply(chosen, &mut template.spec, &mut template.metadata, "spec.template.spec") {
            Ok(()) => Ok(Before::From(Box::new(StartedFrom { template, is_template_same }))),
            Err(_) => Ok(Before::Unknown),
        }
    }

    /// The claim of a memory dump says what is in it.
    async fn annotate_dump(&self) -> Result<(), kube::Error> {
        let Some(request) = &status_of(&self.machine).memory_dump_request else { return Ok(()) };
        let Some(text) = memory_dump::claim_annotation(request) else { return Ok(()) };
        let key = Key::new(&self.key.namespace, &request.claim_name);
        let Some(claim) = self.machines.inventory.claims.claims.get(&key) else { return Ok(()) };
        if annotation(&claim.metadata, memory_dump::ANNOTATION) == Some(text) {
            return Ok(());
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.machines.client.clone(), &self.key.namespace);
        let patch = json!({"metadata": {"annotations": {memory_dump::ANNOTATION: text}}});
        let patched = api.patch(&key.name, &patch::patch_params(), &Patch::Merge(&patch)).await;
        failure::absent_is_none(patched)?;
        Ok(())
    }

    fn disks(&self) -> Disks {
        let volumes = self.machine.spec.template.spec.volumes.iter();
        let mut disks = self.machines.inventory.claims.disks(&self.key.namespace, volumes);
        let templates = &self.machine.spec.data_volume_templates;
        // A data volume that is about to be made is not one that is missing.
        disks.is_filling |=
            matches!(self.machines.inventory.claims.templates(&self.key.namespace, templates), Templates::Waiting);
        disks
    }

    async fn write_status(&mut self) -> Result<(), Error> {
        let expected = self.machines.expectations.get(&self.key);
        let now = this_second();
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), &self.key);
        let next = status::next(Known {
            machine: &self.machine,
            strategy: self.strategy,
            instance: self.instance.as_deref(),
            disks: &self.disks(),
            is_start_expected: expected == Some(Expected::Creation),
            is_stop_expected: matches!(expected, Some(Expected::Deletion(_))),
            wants_start: self.wants_start,
            failure: self.failure.as_ref(),
            restart: &self.restart,
            now,
            random,
        });
        let Some(change) = patch::difference(&self.stored, &next) else { return Ok(()) };
        let metadata = json!({
            "resourceVersion": self.machine.metadata.resource_version,
            "uid": self.machine.metadata.uid,
        });
        let patch = json!({"metadata": metadata, "status": change});
        let api = self.machine_api();
        let patched = api.patch_status(&self.key.name, &patch::patch_params(), &Patch::Merge(&patch)).await;
        if let Some(patched) = failure::absent_is_none(patched)? {
            self.machines.inventory.machines.wrote(patched.clone());
            self.stored = patched.status.clone().unwrap_or_default();
            self.machine = patched;
        }
        Ok(())
    }

    /// An instance that ended may go, now that its machine has taken note of it.
    async fn release_instance(&self) -> Result<(), Error> {
        let Some(instance) = &self.instance else { return Ok(()) };
        if !is_final(instance) || !has_finalizer(&instance.metadata, MACHINE_FINALIZER) {
            return Ok(());
        }
        let mut released = VirtualMachineInstance::clone(instance);
        released.metadata.finalizers.iter_mut().for_each(|list| list.retain(|one| one != MACHINE_FINALIZER));
        failure::absent_is_none(patch_instance(self.machines, instance, &released).await)?;
        Ok(())
    }
}

/// What the guest was started from.
enum Before {
    Same,
    From(Box<StartedFrom>),
    Unknown,
}

struct StartedFrom {
    /// With the instancetype and preference of that time.
    template: VirtualMachineInstanceTemplateSpec,
    /// Only something outside the template has changed since.
    is_template_same: bool,
}

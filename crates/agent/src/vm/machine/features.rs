//! What the board and the processors offer beyond the ordinary: ACPI, system management mode, Hyper-V's interface.

use croft_api::kubevirt::{FeatureHyperv, FeatureState, VirtualMachineInstanceSpec};
use croft_qemu::accel::Accel;
use croft_qemu::spec::{HyperV, Machine};

use super::{Refusal, refuse, system};

/// KVM's own default.
const SPINLOCK_RETRIES: u32 = 4096;

pub(super) fn apply(
    machine: &mut Machine,
    spec: &VirtualMachineInstanceSpec,
    accel: Accel,
    warnings: &mut Vec<String>,
) -> Result<(), Refusal> {
    let Some(features) = &spec.domain.features else { return Ok(()) };
    machine.has_acpi = features.acpi.enabled != Some(false);
    if features.apic.as_ref().is_some_and(|apic| apic.enabled == Some(false)) {
        return refuse("domain.features.apic: the interrupt controller cannot be taken away");
    }
    let has_smm = features.smm.as_ref().is_none_or(|smm| smm.enabled != Some(false));
    machine.has_smm = has_smm;
    if !has_smm && system::has_secure_boot(machine) {
        return refuse("domain.features.smm: Secure Boot needs system management mode");
    }
    if let Some(hyperv) = &features.hyperv {
        machine.hyperv = enlightenments(hyperv);
    }
    machine.hyperv.passthrough =
        features.hyperv_passthrough.as_ref().is_some_and(|passthrough| passthrough.enabled != Some(false));
    let timer = spec.domain.clock.as_ref().and_then(|clock| clock.timer.as_ref());
    machine.hyperv.time = timer.and_then(|timer| timer.hyperv.as_ref()).is_some_and(|one| one.present != Some(false));
    if accel == Accel::Kvm {
        return Ok(());
    }
    if machine.hyperv != HyperV::default() {
        warnings.push("domain.features.hyperv: this node emulates processors, which have no Hyper-V interface".into());
    }
    if is_on(features.pvspinlock.as_ref()) {
        warnings.push("domain.features.pvspinlock: this node emulates processors, which have no such locks".into());
    }
    if features.apic.as_ref().and_then(|apic| apic.end_of_interrupt) == Some(true) {
        let what = "domain.features.apic.endOfInterrupt";
        warnings.push(format!("{what}: this node emulates processors, whose interrupts end the ordinary way"));
    }
    Ok(())
}

fn is_on(state: Option<&FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled != Some(false))
}

fn enlightenments(wanted: &FeatureHyperv) -> HyperV {
    let spinlocks = wanted.spinlocks.as_ref().filter(|spinlocks| spinlocks.enabled != Some(false));
    let vendor = wanted.vendorid.as_ref().filter(|vendor| vendor.enabled != Some(false));
    let flush = wanted.tlbflush.as_ref().filter(|flush| flush.enabled != Some(false));
    let timer = wanted.synictimer.as_ref().filter(|timer| timer.enabled != Some(false));
    HyperV {
        relaxed: is_on(wanted.relaxed.as_ref()),
        vapic: is_on(wanted.vapic.as_ref()),
        spinlock_retries: spinlocks.map(|spinlocks| spinlocks.spinlocks.unwrap_or(SPINLOCK_RETRIES)),
        vpindex: is_on(wanted.vpindex.as_ref()),
        runtime: is_on(wanted.runtime.as_ref()),
        synic: is_on(wanted.synic.as_ref()),
        stimer: timer.is_some(),
        stimer_direct: timer.is_some_and(|timer| is_on(timer.direct.as_ref())),
        reset: is_on(wanted.reset.as_ref()),
        vendor_id: vendor.and_then(|vendor| vendor.vendorid.clone()),
        frequencies: is_on(wanted.frequencies.as_ref()),
        reenlightenment: is_on(wanted.reenlightenment.as_ref()),
        tlbflush: flush.is_some(),
        tlbflush_direct: flush.is_some_and(|flush| is_on(flush.direct.as_ref())),
        tlbflush_extended: flush.is_some_and(|flush| is_on(flush.extended.as_ref())),
        ipi: is_on(wanted.ipi.as_ref()),
        evmcs: is_on(wanted.evmcs.as_ref()),
        ..HyperV::default()
    }
}

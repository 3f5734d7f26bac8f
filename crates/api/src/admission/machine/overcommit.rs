//! What is booked on a node for a machine, from what it was sold: Harvester's overcommit.

use croft_meta::{ApiError, FieldPath, Quantity};
use serde_json::{Value, json};

use super::super::Admission;
use super::super::denial::{Denial, refuse};
use super::{HARVESTER_MUTATOR, annotation};
use crate::harvester::settings;
use crate::view::{flag, has, list, number, set, text};

const RESERVED_MEMORY: &str = "harvesterhci.io/reservedMemory";
const HOTPLUG: &str = "harvesterhci.io/enableCPUAndMemoryHotplug";
const MIB: i64 = 1 << 20;
/// What QEMU was given before its overhead was worked out.
const LEGACY_RESERVED: i64 = 100 * MIB;
const LEAST_GUEST: i64 = 10 * MIB;

const DOMAIN: &str = "spec.template.spec.domain";

fn quantity(object: &Value, path: &str) -> Option<Quantity> {
    Quantity::parse(text(object, path)).ok().filter(|quantity| !quantity.is_zero())
}

fn in_domain(object: &Value, path: &str) -> Option<Quantity> {
    quantity(object, &format!("{DOMAIN}.{path}"))
}

/// Fills in requests, guest memory and the room for sockets, for machines with limits.
pub(super) fn book(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.old.is_some_and(|old| !is_resized(admission.object, old)) {
        return Ok(());
    }
    let text = settings::effective(admission.lookup, "overcommit-config");
    let Ok(config) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
    let percent = |name: &str| config.get(name).and_then(Value::as_i64).filter(|percent| *percent > 0);
    let is_dedicated = flag(admission.object, &format!("{DOMAIN}.cpu.dedicatedCpuPlacement"));
    if let (Some(limit), Some(percent)) = (in_domain(admission.object, "resources.limits.cpu"), percent("cpu")) {
        let milli = if is_dedicated { limit.milli_value() } else { limit.milli_value() * 100 / percent };
        let request = Quantity::from_milli(milli, limit.notation()).to_string();
        set(admission.object, &format!("{DOMAIN}.resources.requests.cpu"), request);
    }
    if let (Some(limit), Some(percent)) = (in_domain(admission.object, "resources.limits.memory"), percent("memory")) {
        book_memory(admission, &limit, percent, is_dedicated)?;
    }
    Ok(())
}

fn is_resized(new: &Value, old: &Value) -> bool {
    let changed = |path: &str| in_domain(new, path).is_some() && in_domain(new, path) != in_domain(old, path);
    let count = |object: &Value, path: &str| list(object, &format!("{DOMAIN}.devices.{path}")).len();
    let dedicated = |object: &Value| flag(object, &format!("{DOMAIN}.cpu.dedicatedCpuPlacement"));
    changed("resources.limits.cpu")
        || changed("resources.limits.memory")
        || annotation(new, RESERVED_MEMORY) != annotation(old, RESERVED_MEMORY)
        || dedicated(new) != dedicated(old)
        || count(new, "hostDevices") != count(old, "hostDevices")
        || count(new, "gpus") != count(old, "gpus")
}

fn book_memory(
    admission: &mut Admission<'_>,
    limit: &Quantity,
    percent: i64,
    is_dedicated: bool,
) -> Result<(), ApiError> {
    let object = &mut *admission.object;
    let grows = annotation(object, HOTPLUG) == "true";
    let total = limit.value();
    let own = in_domain(object, "memory.guest").filter(|_| grows);
    let mut guest = own.map_or(total, |guest| guest.value());
    let reserved = annotation(object, RESERVED_MEMORY);
    let ratio = settings::effective(admission.lookup, "additional-guest-memory-overhead-ratio");
    if !reserved.is_empty() {
        let Ok(quantity) = Quantity::parse(reserved) else {
            return Err(denied(&format!("annotation {reserved} can't be converted to memory unit")));
        };
        let reserved = quantity.value();
        if reserved >= total {
            let message = format!("reservedMemory can't be equal or greater than limits.memory  {reserved} {total}");
            return Err(denied(&message));
        }
        guest -= reserved;
    } else if ratio.trim().parse::<f64>().is_ok_and(|ratio| ratio == 0.0) || ratio.is_empty() {
        guest -= LEGACY_RESERVED;
    }
    if guest < LEAST_GUEST {
        let message =
            format!("guest memory is under the minimum requirement (10 Mi), original: {total}, final: {guest}");
        return Err(denied(&message));
    }
    let has_devices =
        ["hostDevices", "gpus"].into_iter().any(|field| !list(object, &format!("{DOMAIN}.devices.{field}")).is_empty());
    let share = i64::try_from(i128::from(total) * 100 / i128::from(percent)).unwrap_or(i64::MAX) / MIB * MIB;
    let request = if is_dedicated {
        total
    } else if has_devices {
        guest
    } else {
        share
    };
    let written = |value: i64| Quantity::from_i64(value, limit.notation()).to_string();
    set(object, &format!("{DOMAIN}.resources.requests.memory"), written(request));
    if !grows || !has(object, &format!("{DOMAIN}.memory")) {
        set(object, &format!("{DOMAIN}.memory.guest"), written(guest));
    }
    let is_arm = text(object, "spec.template.spec.architecture") == "arm64";
    if !grows && !is_arm {
        let sockets = number(object, &format!("{DOMAIN}.cpu.sockets")).max(1);
        set(object, &format!("{DOMAIN}.cpu.maxSockets"), json!(sockets));
    }
    Ok(())
}

fn denied(message: &str) -> ApiError {
    refuse(HARVESTER_MUTATOR, 500, "InternalError", message)
}

/// What must hold of the memory that was asked for.
pub(super) fn check(denial: &mut Denial, object: &Value) {
    let domain = FieldPath::new(DOMAIN);
    let has_size = has(object, "spec.instancetype");
    let limit = in_domain(object, "resources.limits.memory");
    let guest = in_domain(object, "memory.guest");
    let is_requested = in_domain(object, "resources.requests.memory").is_some();
    let has_pages = has(object, &format!("{DOMAIN}.memory.hugepages"));
    if limit.is_none() && guest.is_none() && !is_requested && !has_pages && !has_size {
        denial.invalid(&domain, "either memory.guest or resources.limits.memory must be set");
    }
    let reserved = annotation(object, RESERVED_MEMORY);
    let (Some(limit), false) = (limit, reserved.is_empty()) else { return };
    let field = FieldPath::new(format!("metadata.annotations[{RESERVED_MEMORY}]"));
    let reserved = match Quantity::parse(reserved) {
        Ok(reserved) => reserved,
        Err(error) => {
            denial.invalid(&field, error.to_string());
            return;
        }
    };
    if reserved.value() < 0 {
        denial.invalid(&field, "reservedMemory cannot be less than 0");
    } else if reserved >= limit {
        denial.invalid(&field, "reservedMemory cannot be equal or greater than limits.memory");
    } else if let Some(guest) = guest.filter(|guest| guest.value().saturating_add(reserved.value()) > limit.value()) {
        let (guest, reserved, limit) = (guest.value(), reserved.value(), limit.value());
        let message =
            format!("guest memory {guest} plus reservedMemory {reserved} cannot be greater than limits.memory {limit}");
        denial.invalid(&field, message);
    }
}

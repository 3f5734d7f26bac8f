//! Memory and what is booked of it.

use croft_meta::FieldPath;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::admission::denial::{Denial, below};
use crate::amount;
use crate::kubevirt::VirtualMachineInstanceSpec;

/// Less is a mistake in the unit.
const LEAST_REQUEST: i64 = 1_000_000;

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let resources = &spec.domain.resources;
    let requests_at = below(at, "domain.resources.requests.memory");
    let limits_at = below(at, "domain.resources.limits.memory");
    let (request, limit) = (resources.requests.get("memory"), resources.limits.get("memory"));
    let value = |quantity: Option<&Quantity>| quantity.map_or(0, amount::value);
    let shown = |quantity: Option<&Quantity>| quantity.map_or_else(|| "0".to_owned(), amount::text);
    if value(request) < 0 {
        denial
            .invalid(&requests_at, format!("{requests_at} '{}': must be greater than or equal to 0.", shown(request)));
    } else if (1..LEAST_REQUEST).contains(&value(request)) {
        let message = format!("{requests_at} '{}': must be greater than or equal to 1M.", shown(request));
        denial.invalid(&requests_at, message);
    }
    if value(limit) < 0 {
        denial.invalid(&limits_at, format!("{limits_at} '{}': must be greater than or equal to 0.", shown(limit)));
    }
    if value(limit) > 0 && value(request) > value(limit) {
        let message = format!("{requests_at} '{}' is greater than {limits_at} '{}'", shown(request), shown(limit));
        denial.invalid(&requests_at, message);
    }
    huge_pages(denial, at, spec);
    let Some(memory) = &spec.domain.memory else { return };
    let guest_at = below(at, "domain.memory.guest");
    if memory.guest.as_ref().is_some_and(|guest| amount::value(guest) <= 0) {
        denial.invalid(&guest_at, format!("{guest_at} '{}': must be greater than 0.", shown(memory.guest.as_ref())));
    }
    if let Some(problem) = memory.max_guest.as_ref().and_then(|most| growth_problem(spec, most)) {
        denial.invalid(&guest_at, problem);
    }
}

fn huge_pages(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let Some(memory) = &spec.domain.memory else { return };
    let Some(pages) = &memory.hugepages else { return };
    let size_at = below(at, "domain.memory.hugepages.pageSize");
    let requests_at = below(at, "domain.resources.requests.memory");
    let size_text = pages.page_size.as_deref().unwrap_or_default();
    let size = amount::parse(&Quantity(size_text.to_owned())).map_or(0, |size| size.value());
    if size <= 0 {
        let problem = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        denial.invalid(&size_at, format!("{size_at} '{size_text}': {problem}"));
        return;
    }
    let resources = &spec.domain.resources;
    let given = [resources.requests.get("memory"), memory.guest.as_ref(), resources.limits.get("memory")];
    let total = given.into_iter().flatten().map(amount::value).find(|value| *value != 0).unwrap_or_default();
    let shown = resources.requests.get("memory").map_or_else(|| "0".to_owned(), amount::text);
    if total != 0 && total < size {
        let message =
            format!("{requests_at} '{shown}' must be equal to or larger than page size {size_at} '{size_text}'");
        denial.invalid(&requests_at, message);
    } else if total % size != 0 {
        let message = format!("{requests_at} '{shown}' is not a multiple of the page size {size_at} '{size_text}'");
        denial.invalid(&requests_at, message);
    }
}

/// Why a guest could not grow to `most` while it runs.
fn growth_problem(spec: &VirtualMachineInstanceSpec, most: &Quantity) -> Option<String> {
    let domain = &spec.domain;
    let memory = domain.memory.as_ref();
    let Some(guest) = memory.and_then(|memory| memory.guest.as_ref()) else {
        return Some("Guest memory must be configured when memory hotplug is enabled".to_owned());
    };
    let is_huge = memory
        .and_then(|memory| memory.hugepages.as_ref())
        .is_some_and(|pages| pages.page_size.as_deref() == Some("1Gi"));
    let (block, name) = if is_huge { (1 << 30, "1Gi") } else { (2 << 20, "2Mi") };
    let (guest, most) = (amount::value(guest), amount::value(most));
    Some(if guest > most {
        "Guest memory is greater than the configured maxGuest memory".to_owned()
    } else if guest % block != 0 {
        format!("Guest memory must be {name} aligned")
    } else if most % block != 0 {
        format!("MaxGuest must be {name} aligned")
    } else if guest < 1 << 30 {
        "Memory hotplug is only available for VMs with at least 1Gi of guest memory".to_owned()
    } else {
        return None;
    })
}

pub(super) fn check_present(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let is_requested = !amount::is_zero(spec.domain.resources.requests.get("memory"));
    let is_given =
        spec.domain.memory.as_ref().is_some_and(|memory| memory.guest.is_some() || memory.hugepages.is_some());
    if is_requested || is_given {
        return;
    }
    let message = format!(
        "no memory requested, at least one of '{}', '{}' or '{}' must be set",
        below(at, "domain.memory.guest"),
        below(at, "domain.memory.hugepages.pageSize"),
        below(at, "domain.resources.requests.memory"),
    );
    denial.required(&FieldPath::root(), message);
}

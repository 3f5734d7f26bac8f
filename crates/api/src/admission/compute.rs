//! What a namespace's ResourceQuotas and LimitRanges allow its machines: they count as Kubernetes counts the pods that
//! KubeVirt would run them in, without what QEMU needs for itself.

use croft_meta::ApiError;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::HARVESTER;
use super::{Admission, Lookup};
use crate::compute_quota::{parsed, written};
use crate::kubevirt::VirtualMachineInstance;
use crate::object_quota;
use crate::view::{list, map, text};

/// What a Rancher project gives a namespace.
const NAMESPACE_QUOTA: &str = "field.cattle.io/resourceQuota";

fn demand_of(instance: &Value, key: &str) -> Option<i64> {
    object_quota::instance(key, instance)
}

fn used(lookup: &dyn Lookup, namespace: &str, key: &str) -> i64 {
    let instances = lookup.list("kubevirt.io", "virtualmachineinstances", namespace);
    instances.iter().filter_map(|instance| demand_of(instance, key)).fold(0, i64::saturating_add)
}

/// Beside machines, pods that are stored take room.
fn used_of(quota: &Value, lookup: &dyn Lookup, namespace: &str, key: &str) -> i64 {
    let pods = ("", "pods");
    if key.starts_with("count/") || !object_quota::sources(key).contains(&pods) {
        return used(lookup, namespace, key);
    }
    let stored = lookup.pods_beside_machines(namespace);
    let taken = stored.iter().map(|pod| object_quota::demand(quota, key, pods, pod));
    taken.fold(used(lookup, namespace, key), i64::saturating_add)
}

/// Refuses an instance for which its namespace has no room, in the words of Kubernetes.
pub(super) fn check_instance(instance: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let namespace = text(instance, "metadata.namespace");
    for quota in lookup.list("", "resourcequotas", namespace) {
        if let Some(why) = exceeded(instance, &quota, |key| used_of(&quota, lookup, namespace, key)) {
            return Err(forbidden(instance, &why));
        }
    }
    let ranges = lookup.list("", "limitranges", namespace);
    match ranges.iter().find_map(|range| out_of_range(instance, range)) {
        Some(why) => Err(forbidden(instance, &why)),
        None => Ok(()),
    }
}

/// What the namespace gives to whoever asks for no limits: KubeVirt's for memory, Kubernetes' for processors.
pub(super) fn fill_limits(instance: &mut VirtualMachineInstance, namespace: &str, lookup: &dyn Lookup) {
    let ranges = lookup.list("", "limitranges", namespace);
    let of_containers = || {
        let limits = ranges.iter().flat_map(|range| list(range, "spec.limits"));
        limits.filter(|limit| text(limit, "type") == "Container")
    };
    for name in ["cpu", "memory"] {
        if instance.spec.domain.resources.limits.contains_key(name) {
            continue;
        }
        let given = of_containers().filter_map(|limit| map(limit, "default")?.get(name)?.as_str());
        let least = given.filter_map(|text| Some((parsed(name, text).filter(|amount| *amount > 0)?, text))).min();
        if let Some((_, text)) = least {
            instance.spec.domain.resources.limits.insert(name.to_owned(), Quantity(text.to_owned()));
        }
    }
}

/// Refuses a claim whose size its namespace does not allow, in the words of Kubernetes.
pub(super) fn check_claim(claim: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let ranges = lookup.list("", "limitranges", text(claim, "metadata.namespace"));
    let asked = text(claim, "spec.resources.requests.storage");
    let Some(size) = parsed("storage", asked) else { return Ok(()) };
    let of_claims = ranges.iter().flat_map(|range| list(range, "spec.limits"));
    for limit in of_claims.filter(|limit| text(limit, "type") == "PersistentVolumeClaim") {
        let bound = |which: &str| {
            let text = map(limit, which)?.get("storage")?.as_str()?;
            Some((parsed("storage", text)?, text))
        };
        let why = match (bound("min"), bound("max")) {
            (Some((least, text)), _) if size < least => {
                format!("minimum storage usage per PersistentVolumeClaim is {text}")
            }
            (_, Some((most, text))) if size > most => {
                format!("maximum storage usage per PersistentVolumeClaim is {text}")
            }
            _ => continue,
        };
        let why = format!("{why}, but request is {asked}");
        return Err(ApiError::forbidden("", "persistentvolumeclaims", text(claim, "metadata.name"), why));
    }
    Ok(())
}

fn forbidden(instance: &Value, why: &str) -> ApiError {
    ApiError::forbidden("kubevirt.io", "virtualmachineinstances", text(instance, "metadata.name"), why)
}

fn exceeded(instance: &Value, quota: &Value, used: impl Fn(&str) -> i64) -> Option<String> {
    let mut unsaid = Vec::new();
    let mut over = Vec::new();
    for (key, limit, hard) in object_quota::limits(quota, Some(("kubevirt.io", "virtualmachineinstances"))) {
        let Some(wanted) = demand_of(instance, &key) else {
            unsaid.push(key);
            continue;
        };
        let used = used(&key);
        if used.saturating_add(wanted) > limit {
            over.push((key, wanted, used, hard));
        }
    }
    if !unsaid.is_empty() {
        return Some(format!("failed quota: {}: must specify {}", text(quota, "metadata.name"), unsaid.join(",")));
    }
    object_quota::refusal(quota, &over)
}

fn out_of_range(instance: &Value, range: &Value) -> Option<String> {
    let of_machines =
        list(range, "spec.limits").iter().filter(|limit| matches!(text(limit, "type"), "Container" | "Pod"));
    of_machines.into_iter().find_map(|limit| {
        let kind = text(limit, "type");
        ["cpu", "memory"].into_iter().find_map(|name| {
            let bound = |which: &str| {
                let text = map(limit, which)?.get(name)?.as_str()?.to_owned();
                Some((parsed(name, &text)?, text))
            };
            let limited = demand_of(instance, &format!("limits.{name}"));
            let requested = demand_of(instance, &format!("requests.{name}"));
            if let Some((most, text)) = bound("max") {
                match limited {
                    None => return Some(format!("maximum {name} usage per {kind} is {text}.  No limit is specified")),
                    Some(asked) if asked > most => {
                        let asked = written(name, asked);
                        return Some(format!("maximum {name} usage per {kind} is {text}, but limit is {asked}"));
                    }
                    Some(_) => {}
                }
            }
            let (least, text) = bound("min")?;
            let asked = requested.filter(|asked| *asked < least)?;
            Some(format!("minimum {name} usage per {kind} is {text}, but request is {}", written(name, asked)))
        })
    })
}

/// A namespace's share of its project may not fall below what its machines use.
pub(super) fn admit_namespace(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let namespace = &*admission.object;
    let quota_of = |object: &Value| {
        let text = map(object, "metadata.annotations")?.get(NAMESPACE_QUOTA)?.as_str()?.to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let Some(new) = quota_of(namespace) else { return Ok(()) };
    if admission.old.and_then(quota_of).as_ref() == Some(&new) {
        return Ok(());
    }
    let mut denial = Denial::by(HARVESTER);
    let field = croft_meta::FieldPath::new("metadata.annotations");
    if is_moving_machines(text(namespace, "metadata.name"), admission.lookup) {
        let message =
            format!("namespace {} has migrating VMs, can't change resource quotas", text(namespace, "metadata.name"));
        return Err(refuse(HARVESTER, 422, "Invalid", &message));
    }
    let Ok(quota) = serde_json::from_str::<Value>(&new) else {
        denial.invalid(&field, format!("the annotation {NAMESPACE_QUOTA} is not JSON"));
        return denial.finish();
    };
    let name = text(namespace, "metadata.name");
    for (member, key, word) in [("limitsCpu", "limits.cpu", "CPU"), ("limitsMemory", "limits.memory", "Memory")] {
        let Some(limit) = quota["limit"][member].as_str().filter(|limit| !limit.is_empty()) else { continue };
        let Some(amount) = parsed(key, limit) else {
            denial.invalid(&field, format!("{member} {limit:?} is not a quantity"));
            continue;
        };
        let used = used(admission.lookup, name, key);
        if amount < used {
            let used = written(key, used);
            let message = format!("new {word} limit {limit} is lower than the current used {word} limit {used}");
            return Err(refuse(HARVESTER, 422, "Invalid", &message));
        }
    }
    denial.finish()
}

fn is_moving_machines(namespace: &str, lookup: &dyn Lookup) -> bool {
    let migrations = lookup.list("kubevirt.io", "virtualmachineinstancemigrations", namespace);
    migrations.iter().any(|migration| !matches!(text(migration, "status.phase"), "Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, nothing, write};
    use super::*;

    fn instance(name: &str, limits: &Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "n"}, "spec": {"domain": {"resources": {"limits": limits}}},
            "status": {"phase": "Running"},
        })
    }

    fn quota(hard: &Value) -> Value {
        json!({"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": hard}})
    }

    #[test]
    fn what_does_not_fit_is_refused_as_kubernetes_does() {
        let running = instance("a", &json!({"cpu": "1", "memory": "1Gi"}));
        let new = instance("b", &json!({"cpu": "1500m", "memory": "1Gi"}));
        let table = [
            (json!({"limits.cpu": "2500m"}), None),
            (
                json!({"limits.cpu": "2"}),
                Some("exceeded quota: q, requested: limits.cpu=1500m, used: limits.cpu=1, limited: limits.cpu=2"),
            ),
            (
                json!({"limits.memory": "1536Mi"}),
                Some(
                    "exceeded quota: q, requested: limits.memory=1Gi, used: limits.memory=1Gi, limited: limits.memory=1536Mi",
                ),
            ),
            (json!({"requests.memory": "4Gi", "pods": "2"}), None),
            (json!({"pods": "1"}), Some("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")),
            (json!({"configmaps": "0"}), None),
        ];
        for (hard, expected) in table {
            let objects = nothing().with("kubevirt.io", "virtualmachineinstances", running.clone()).with(
                "",
                "resourcequotas",
                quota(&hard),
            );
            let refused = check_instance(&new, &objects).err();
            match expected {
                None => assert!(refused.is_none(), "{hard}: {refused:?}"),
                Some(words) => {
                    let error = refused.unwrap_or_else(|| panic!("{hard} is let in"));
                    assert_eq!(error.code(), 403);
                    assert!(error.message().ends_with(words), "{error}");
                }
            }
        }
        let unlimited = instance("c", &json!({}));
        let objects = nothing().with("", "resourcequotas", quota(&json!({"limits.cpu": "2"})));
        assert!(check_instance(&unlimited, &objects).unwrap_err().message().contains("must specify limits.cpu"));
    }

    #[test]
    fn what_has_ended_uses_nothing() {
        let mut ended = instance("a", &json!({"cpu": "2"}));
        ended["status"]["phase"] = "Succeeded".into();
        let objects = nothing().with("kubevirt.io", "virtualmachineinstances", ended).with(
            "",
            "resourcequotas",
            quota(&json!({"limits.cpu": "2"})),
        );
        check_instance(&instance("b", &json!({"cpu": "2"})), &objects).unwrap();
    }

    #[test]
    fn limit_ranges_bound_single_machines() {
        let range = |limit: Value| json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": [limit]}});
        let vm = instance("a", &json!({"cpu": "2", "memory": "1Gi"}));
        for (limit, expected) in [
            (
                json!({"type": "Container", "max": {"cpu": "1"}}),
                Some("maximum cpu usage per Container is 1, but limit is 2"),
            ),
            (
                json!({"type": "Pod", "min": {"memory": "2Gi"}}),
                Some("minimum memory usage per Pod is 2Gi, but request is 1Gi"),
            ),
            (json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}), None),
            (json!({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}), None),
        ] {
            let objects = nothing().with("", "limitranges", range(limit.clone()));
            let refused = check_instance(&vm, &objects).err().map(|error| error.message().to_owned());
            assert_eq!(refused.is_some(), expected.is_some(), "{limit}: {refused:?}");
            assert!(refused.unwrap_or_default().ends_with(expected.unwrap_or_default()), "{limit}");
        }
    }

    #[test]
    fn whoever_asks_for_no_limits_gets_those_of_the_namespace() {
        let range = |default: Value| json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": [{"type": "Container", "default": default}]}});
        let objects = nothing().with("", "limitranges", range(json!({"cpu": "2", "memory": "1Gi"}))).with(
            "",
            "limitranges",
            range(json!({"memory": "512Mi"})),
        );
        let filled = |limits: Value| {
            let mut object = instance("a", &limits);
            object["spec"]["domain"]["devices"] = json!({});
            let mut vmi: VirtualMachineInstance = serde_json::from_value(object).unwrap();
            fill_limits(&mut vmi, "n", &objects);
            serde_json::to_value(vmi.spec.domain.resources.limits).unwrap()
        };
        assert_eq!(filled(json!({})), json!({"cpu": "2", "memory": "512Mi"}));
        assert_eq!(filled(json!({"memory": "2Gi"})), json!({"cpu": "2", "memory": "2Gi"}));
    }

    #[test]
    fn limit_ranges_bound_the_sizes_of_claims() {
        let limit = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
        let range = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": [limit]}});
        let objects = nothing().with("", "limitranges", range);
        let claim = |size: &str| json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"resources": {"requests": {"storage": size}}}});
        for (size, expected) in [
            ("1536Mi", ""),
            ("1Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
            ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
        ] {
            let refused = check_claim(&claim(size), &objects).err().map(|error| error.message().to_owned());
            assert!(refused.clone().unwrap_or_default().ends_with(expected), "{refused:?}");
            assert_eq!(refused.is_none(), expected.is_empty(), "{size}");
        }
    }

    #[test]
    fn a_namespace_keeps_what_its_machines_use() {
        let namespace = |limit: &str| json!({"metadata": {"name": "n", "annotations": {NAMESPACE_QUOTA: format!("{{\"limit\":{{\"limitsCpu\":\"{limit}\"}}}}")}}});
        let objects = nothing().with("kubevirt.io", "virtualmachineinstances", instance("a", &json!({"cpu": "2"})));
        let old = json!({"metadata": {"name": "n"}});
        write(admit_namespace, namespace("2000m"), Some(&old), &objects, false).unwrap();
        let error = write(admit_namespace, namespace("1"), Some(&old), &objects, false).unwrap_err();
        assert!(error.message().contains("new CPU limit 1 is lower than the current used CPU limit 2"), "{error}");
        write(admit_namespace, namespace("many"), Some(&old), &objects, false).unwrap_err();
        let moving = json!({"metadata": {"name": "m", "namespace": "n"}, "status": {"phase": "Running"}});
        let busy = nothing().with("kubevirt.io", "virtualmachineinstancemigrations", moving);
        let error = write(admit_namespace, namespace("9"), Some(&old), &busy, false).unwrap_err();
        assert!(error.message().contains("namespace n has migrating VMs"), "{error}");
        admitted(admit_namespace, json!({"metadata": {"name": "n"}}));
    }
}

//! LoadBalancers and the IPPools that they have addresses from.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use croft_meta::ApiError;
use serde_json::{Value, json};

use super::denial::refuse;
use super::{Admission, Lookup};
use crate::view::{default, default_text, get, has, int, list, map, number, text};

pub(super) const VALIDATOR: &str = "validator.harvester-load-balancer.harvesterhci.io";
const GROUP: &str = "loadbalancer.harvesterhci.io";

fn refusal(verb: &str, kind: &str, name: &str, why: &str) -> Result<(), ApiError> {
    Err(refuse(VALIDATOR, 422, "Invalid", &format!("can't {verb} {kind} {name} because {why}")))
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let balancer = &mut *admission.object;
    if has(balancer, "metadata.deletionTimestamp") {
        return Ok(());
    }
    default_text(balancer, "spec.workloadType", "vm");
    default_text(balancer, "spec.ipam", "pool");
    if number(balancer, "spec.healthCheck.port") != 0 {
        let defaults = [("successThreshold", 2), ("failureThreshold", 2), ("timeoutSeconds", 1), ("periodSeconds", 1)];
        for (field, value) in defaults {
            default(balancer, &format!("spec.healthCheck.{field}"), value);
        }
    }
    let balancer = &*admission.object;
    let name = format!("{}/{}", text(balancer, "metadata.namespace"), text(balancer, "metadata.name"));
    let verb = if admission.old.is_some() { "update" } else { "create" };
    let why = admission.old.and_then(|old| moved(balancer, old)).or_else(|| wrong(balancer));
    why.map_or(Ok(()), |why| refusal(verb, "loadbalancer", &name, &why))
}

/// What an address was given out for does not change.
fn moved(balancer: &Value, old: &Value) -> Option<String> {
    [("ipam", "IPAM"), ("workloadType", "WorkloadType")].into_iter().find_map(|(field, label)| {
        let path = format!("spec.{field}");
        let (from, to) = (text(old, &path), text(balancer, &path));
        (!from.is_empty() && from != to).then(|| format!("can't change the {label} from {from} to {to}"))
    })
}

fn wrong(balancer: &Value) -> Option<String> {
    let listeners = list(balancer, "spec.listeners");
    // The balancer of a guest cluster has its listeners in the guest.
    if listeners.is_empty() && text(balancer, "spec.workloadType") != "cluster" {
        return Some("the loadbalancer needs to have at least one listener".to_owned());
    }
    let (mut names, mut ports, mut backends) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for listener in listeners {
        let name = text(listener, "name");
        if !name.is_empty() && !names.insert(name) {
            return Some(format!("listener has duplicate name {name}"));
        }
        let protocol = text(listener, "protocol");
        for (label, taken, field) in [("port", &mut ports, "port"), ("backendPort", &mut backends, "backendPort")] {
            let port = number(listener, field);
            if !(1..=65535).contains(&port) {
                return Some(format!("listener {name} has an invalid {label} {port}, it must be in 1..65535"));
            }
            if !taken.insert((port, protocol)) {
                return Some(format!("listener {name} has duplicate {label} {port} and protocol {protocol}"));
            }
        }
    }
    wrong_health_check(balancer, &backends)
}

fn wrong_health_check(balancer: &Value, backends: &BTreeSet<(i64, &str)>) -> Option<String> {
    let check = get(balancer, "spec.healthCheck")?;
    let port = number(check, "port");
    if port == 0 {
        return None;
    }
    if !backends.is_empty() {
        if !backends.iter().any(|(backend, _)| *backend == port) {
            return Some(format!("healthcheck port {port} is not in listener backend port list"));
        }
        if !backends.contains(&(port, "TCP")) {
            return Some(format!("healthcheck port {port} can only be a TCP backend port"));
        }
    }
    ["successThreshold", "failureThreshold", "periodSeconds", "timeoutSeconds"]
        .into_iter()
        .find(|field| int(check, field).is_some_and(|value| value <= 0))
        .map(|field| format!("healthcheck {field} should be greater than 0"))
}

/// The first and the last address of a range.
fn bounds(range: &Value) -> Result<(u32, u32), String> {
    let subnet = text(range, "subnet");
    let wrong = || format!("invalid subnet {subnet:?}");
    let (address, length) = subnet.split_once('/').ok_or_else(wrong)?;
    let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
    let length: u32 = length.parse().ok().filter(|length| *length <= 32).ok_or_else(wrong)?;
    let hosts = u32::MAX.checked_shr(length).unwrap_or_default();
    let first = u32::from(address) & !hosts;
    let last = first | hosts;
    let bound = |field: &str, default: u32| match text(range, field) {
        "" => Ok(default),
        text => {
            let address: Ipv4Addr = text.parse().map_err(|_| format!("invalid {field} {text:?}"))?;
            let is_inside = (first..=last).contains(&u32::from(address));
            is_inside.then(|| u32::from(address)).ok_or_else(|| format!("{field} {text} is not in the subnet {subnet}"))
        }
    };
    let (own_first, own_last) = if hosts > 1 { (first + 1, last - 1) } else { (first, last) };
    let (start, end) = (bound("rangeStart", own_first)?, bound("rangeEnd", own_last)?);
    bound("gateway", own_first)?;
    if start > end {
        return Err(format!("rangeStart is behind rangeEnd in the subnet {subnet}"));
    }
    Ok((start, end))
}

fn ranges(pool: &Value) -> Result<Vec<(u32, u32)>, String> {
    list(pool, "spec.ranges").iter().map(bounds).collect()
}

fn do_overlap(a: (u32, u32), b: (u32, u32)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

fn shown((start, end): (u32, u32)) -> String {
    format!("{}-{}", Ipv4Addr::from(start), Ipv4Addr::from(end))
}

pub(super) fn admit_pool(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let pool = &*admission.object;
    let is_same = admission.old.is_some_and(|old| get(old, "spec") == get(pool, "spec"));
    if is_same || has(pool, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let name = text(pool, "metadata.name").to_owned();
    let verb = if admission.old.is_some() { "update" } else { "create" };
    if let Err(why) = check_pool(pool, admission.lookup) {
        return refusal(verb, "IPPool", &name, &why);
    }
    let is_global = is_global(pool);
    if let Some(labels) = crate::view::map_mut(admission.object, "metadata.labels") {
        labels.insert(format!("{GROUP}/global-ip-pool"), json!(is_global.to_string()));
    }
    Ok(())
}

fn check_pool(pool: &Value, lookup: &dyn Lookup) -> Result<(), String> {
    let own = ranges(pool)?;
    if own.is_empty() {
        return Err("range can't be empty".to_owned());
    }
    for (index, range) in own.iter().enumerate() {
        if let Some(other) = own[..index].iter().find(|other| do_overlap(**other, *range)) {
            return Err(format!("there are overlaps between range {} and {}", shown(*other), shown(*range)));
        }
    }
    let name = text(pool, "metadata.name");
    let others = lookup.list(GROUP, "ippools", "");
    for other in others.iter().filter(|other| text(other, "metadata.name") != name) {
        let of = text(other, "metadata.name");
        if ranges(other).unwrap_or_default().iter().any(|range| own.iter().any(|own| do_overlap(*own, *range))) {
            return Err(format!("the ranges overlap with other pools: {of}"));
        }
        if is_global(pool) && is_global(other) {
            return Err(format!("there is already a global IP pool: {of}"));
        }
        let selector = |pool: &Value, field: &str| get(pool, &format!("spec.selector.{field}")).cloned();
        let (priority, scope) = (number(pool, "spec.selector.priority"), selector(pool, "scope"));
        let is_rival = scope.is_some()
            && scope == selector(other, "scope")
            && selector(pool, "network") == selector(other, "network");
        if is_rival && number(other, "spec.selector.priority") == priority {
            return Err(format!("the priority can't be the same as the pool {of}"));
        }
    }
    let is_inside = |address: &str| {
        let address = address.parse::<Ipv4Addr>().map(u32::from);
        address.is_ok_and(|address| own.iter().any(|(start, end)| (*start..=*end).contains(&address)))
    };
    match map(pool, "status.allocated").into_iter().flatten().find(|(address, _)| !is_inside(address)) {
        Some((address, _)) => Err(format!("allocated IP {address} is excluded")),
        None => Ok(()),
    }
}

/// For every project, namespace and guest cluster.
fn is_global(pool: &Value) -> bool {
    let scope = list(pool, "spec.selector.scope");
    let is_all =
        |tuple: &Value| ["project", "namespace", "guestCluster"].into_iter().all(|field| text(tuple, field) == "*");
    scope.iter().any(is_all)
}

pub(super) fn admit_pool_delete(pool: &Value, _: &dyn Lookup) -> Result<(), ApiError> {
    if map(pool, "status.allocated").is_none_or(serde_json::Map::is_empty) {
        return Ok(());
    }
    let name = text(pool, "metadata.name");
    refusal("delete", "IPPool", name, "can't delete pool before releasing all the allocated IP")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{nothing, write};
    use super::*;
    use crate::view::set;

    fn with(mut object: Value, change: &Value) -> Value {
        for (path, value) in change.as_object().into_iter().flatten() {
            set(&mut object, path, value.clone());
        }
        object
    }

    fn balancer(change: &Value) -> Value {
        let listener = json!({"name": "a", "port": 80, "protocol": "TCP", "backendPort": 8080});
        let balancer = json!({"metadata": {"name": "b", "namespace": "n"}, "spec": {"listeners": [listener], "healthCheck": {"port": 8080}}});
        with(balancer, change)
    }

    #[track_caller]
    fn says(result: Result<Value, ApiError>, text: &str) {
        let error = result.unwrap_err();
        assert!(error.code() == 422 && error.message().contains(text), "{error}");
    }

    #[test]
    fn balancers_have_listeners_and_sound_checks() {
        let made = write(admit, balancer(&json!({})), None, &nothing(), false).unwrap();
        assert_eq!((&made["spec"]["workloadType"], &made["spec"]["ipam"]), (&json!("vm"), &json!("pool")));
        assert_eq!(made["spec"]["healthCheck"]["successThreshold"], 2);
        let one = |change: Value| {
            let listener = json!({"name": "a", "port": 80, "protocol": "TCP", "backendPort": 8080});
            let mut other = json!({"name": "b", "port": 81, "protocol": "TCP", "backendPort": 8081});
            for (field, value) in change.as_object().unwrap() {
                other[field] = value.clone();
            }
            json!({"spec.listeners": [listener, other]})
        };
        for (change, text) in [
            (json!({"spec.listeners": []}), "needs to have at least one listener"),
            (one(json!({"name": "a"})), "listener has duplicate name a"),
            (one(json!({"port": 80})), "listener b has duplicate port 80"),
            (one(json!({"backendPort": 8080})), "listener b has duplicate backendPort 8080"),
            (one(json!({"port": 70000})), "must be in 1..65535"),
            (one(json!({"backendPort": 0})), "must be in 1..65535"),
            (json!({"spec.healthCheck.port": 9}), "healthcheck port 9 is not in listener backend port list"),
            (json!({"spec.healthCheck.successThreshold": 0}), "should be greater than 0"),
            (
                json!({"spec.listeners": [{"name": "a", "port": 80, "protocol": "UDP", "backendPort": 8080}]}),
                "healthcheck port 8080 can only be a TCP backend port",
            ),
        ] {
            says(write(admit, balancer(&change), None, &nothing(), false), text);
        }
        let guest = balancer(&json!({"spec": {"workloadType": "cluster", "ipam": "dhcp"}}));
        write(admit, guest.clone(), None, &nothing(), false).unwrap();
        let change = |path: &str, value: &str| {
            write(admit, with(guest.clone(), &json!({path: value})), Some(&guest), &nothing(), false)
        };
        says(change("spec.ipam", "pool"), "can't change the IPAM from dhcp to pool");
        says(change("spec.workloadType", "vm"), "can't change the WorkloadType from cluster to vm");
    }

    fn pool(change: &Value) -> Value {
        let pool = json!({"metadata": {"name": "p"}, "spec": {"ranges": [{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.10", "rangeEnd": "192.0.2.20"}]}});
        with(pool, change)
    }

    #[test]
    fn pools_do_not_get_in_each_others_way() {
        let create = |change: &Value| write(admit_pool, pool(change), None, &nothing(), false);
        create(&json!({})).unwrap();
        create(&json!({"spec.ranges": [{"subnet": "10.9.0.0/24"}, {"subnet": "10.9.1.1/32"}]})).unwrap();
        for (range, text) in [
            (json!([]), "range can't be empty"),
            (json!([{"subnet": "x"}]), "invalid subnet"),
            (json!([{"subnet": "10.0.0.0/33"}]), "invalid subnet"),
            (json!([{"subnet": "10.0.0.0/24", "rangeStart": "10.0.1.1"}]), "is not in the subnet"),
            (
                json!([{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"}]),
                "is behind rangeEnd",
            ),
            (json!([{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]), "there are overlaps between range"),
        ] {
            says(create(&json!({"spec.ranges": range})), text);
        }
        let all = json!({"spec.selector": {"scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]}});
        assert_eq!(create(&all).unwrap()["metadata"]["labels"]["loadbalancer.harvesterhci.io/global-ip-pool"], "true");
        let beside = |change: &Value, own: &Value| {
            let elsewhere = json!({"metadata.name": "q", "spec.ranges": [{"subnet": "198.51.100.0/24"}]});
            let other = with(with(pool(&json!({})), &elsewhere), change);
            let lookup = nothing().with(GROUP, "ippools", other);
            write(admit_pool, pool(own), None, &lookup, false)
        };
        beside(&json!({}), &json!({})).unwrap();
        says(beside(&json!({"spec.ranges": [{"subnet": "192.0.2.0/24"}]}), &json!({})), "overlap with other pools: q");
        says(beside(&all, &all), "there is already a global IP pool: q");
        let mine = json!({"spec.selector": {"priority": 3, "scope": [{"namespace": "n"}]}});
        says(beside(&mine, &mine), "the priority can't be the same as the pool q");

        let used = pool(&json!({"status.allocated": {"192.0.2.10": "n/b"}}));
        let smaller = with(used.clone(), &json!({"spec.ranges": [{"subnet": "10.9.0.0/24"}]}));
        says(write(admit_pool, smaller, Some(&used), &nothing(), false), "allocated IP 192.0.2.10 is excluded");
        assert!(admit_pool_delete(&used, &nothing()).unwrap_err().message().contains("before releasing all"));
        admit_pool_delete(&pool(&json!({})), &nothing()).unwrap();
    }
}

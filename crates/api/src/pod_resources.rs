//! What all containers of a pod ask for together, as upstream's `PodRequests` and `PodLimits` add it up.

use std::collections::BTreeMap;

use croft_meta::Quantity;
use serde_json::Value;

use crate::view::{get, list, map, text};

/// Amounts by the names of resources.
pub type Amounts = BTreeMap<String, Quantity>;

/// The quality of service that a pod has by what it asks for, as upstream's `ComputePodQOS`: guaranteed if its limits of
/// processors and memory are its requests too. What it says for all of its containers goes before what they say.
pub fn quality_of_service(pod: &Value) -> &'static str {
    let whole = get(pod, "spec").filter(|_| get(pod, "spec.resources").is_some_and(|said| !said.is_null()));
    let asking: Vec<&Value> = match whole {
        Some(whole) => vec![whole],
        None => list(pod, "spec.containers").iter().chain(list(pod, "spec.initContainers")).collect(),
    };
    let (mut requests, mut limits, mut is_bounded) = (Amounts::new(), Amounts::new(), true);
    for one in asking {
        let [requested, limited] = ["requests", "limits"].map(|which| computing(one, which));
        is_bounded &= limited.len() == OF_PODS.len();
        add(&mut requests, &requested);
        add(&mut limits, &limited);
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if is_bounded && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Processors and memory; nothing of something is as good as not said.
fn computing(object: &Value, which: &str) -> Amounts {
    let mut amounts = of(object, which);
    amounts.retain(|name, amount| OF_PODS.contains(&name.as_str()) && !amount.is_zero());
    amounts
}

/// What a pod can say for all of its containers.
const OF_PODS: &[&str] = &["cpu", "memory"];

/// `requests` or `limits` of a container, or of the pod itself.
pub fn of(object: &Value, which: &str) -> Amounts {
    amounts(map(object, &format!("resources.{which}")))
}

pub(crate) fn amounts(found: Option<&serde_json::Map<String, Value>>) -> Amounts {
    let read = |(name, value): (&String, &Value)| {
        let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((name.clone(), Quantity::parse(&written).ok()?))
    };
    found.into_iter().flatten().filter_map(read).collect()
}

/// Of a whole pod, without its overhead. Containers run side by side; each of the first ones runs alone, beside those that
/// were started before it and stay.
pub fn total(pod: &Value, which: &str) -> Amounts {
    let mut sum = Amounts::new();
    for container in list(pod, "spec.containers") {
        add(&mut sum, &of(container, which));
    }
    let (mut staying, mut first) = (Amounts::new(), Amounts::new());
    for container in list(pod, "spec.initContainers") {
        let mut own = of(container, which);
        if text(container, "restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut staying, &own);
            own.clone_from(&staying);
        } else {
            add(&mut own, &staying);
        }
        raise(&mut first, own);
    }
    raise(&mut sum, first);
    let said = amounts(map(pod, &format!("spec.resources.{which}")));
    sum.extend(said.into_iter().filter(|(name, _)| OF_PODS.contains(&name.as_str())));
    sum
}

/// What running a pod takes beside its containers: more for those who ask, and for limits that there are.
pub fn total_with_overhead(pod: &Value, which: &str) -> Amounts {
    let mut sum = total(pod, which);
    let mut overhead = amounts(map(pod, "spec.overhead"));
    if which == "limits" {
        overhead.retain(|name, _| sum.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut sum, &overhead);
    sum
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let both = sum.get(name).map_or_else(|| amount.clone(), |known| known + amount);
        sum.insert(name.clone(), both);
    }
}

fn raise(least: &mut Amounts, to: Amounts) {
    for (name, amount) in to {
        if least.get(&name).is_none_or(|known| amount > *known) {
            least.insert(name, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    fn cpu(pod: &Value) -> String {
        total(pod, "requests").get("cpu").map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn containers_add_up_and_the_first_ones_do_not() {
        let mut staying = container("300m");
        staying["restartPolicy"] = json!("Always");
        let both = json!([container("100m"), container("200m")]);
        let table = [
            (json!({"containers": both}), "300m"),
            (json!({"containers": both, "initContainers": [container("250m"), container("400m")]}), "400m"),
            (json!({"containers": both, "initContainers": [staying, container("100m")]}), "600m"),
            (json!({"containers": both, "initContainers": [staying, container("1")]}), "1300m"),
            (json!({"containers": both, "resources": {"requests": {"cpu": "2"}}}), "2"),
        ];
        for (spec, wanted) in table {
            assert_eq!(cpu(&json!({"spec": spec})), wanted, "{spec}");
        }
    }

    #[test]
    fn quality_of_service_follows_the_resources() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let (guaranteed, none) = (json!({"requests": both, "limits": both}), json!({"cpu": "0", "memory": 0}));
        let of = |containers: &[&Value]| {
            let containers: Vec<Value> = containers.iter().map(|resources| json!({"resources": resources})).collect();
            json!({"containers": containers})
        };
        let whole = |resources: Value, containers: &[&Value]| {
            let mut spec = of(containers);
            spec["resources"] = resources;
            spec
        };
        let table = [
            (of(&[&json!({})]), "BestEffort"),
            (of(&[&json!({"requests": none, "limits": none})]), "BestEffort"),
            (of(&[&json!({"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 1}})]), "BestEffort"),
            (of(&[&json!({"requests": {"cpu": "1"}})]), "Burstable"),
            (of(&[&guaranteed]), "Guaranteed"),
            (of(&[&json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": both})]), "Guaranteed"),
            (of(&[&json!({"requests": {"cpu": "0", "memory": "1Gi"}, "limits": both})]), "Burstable"),
            (of(&[&json!({"requests": {"cpu": "0"}, "limits": {"cpu": "0", "memory": "1Gi"}})]), "Burstable"),
            (of(&[&guaranteed, &json!({})]), "Burstable"),
            (whole(json!({"requests": both, "limits": both}), &[&json!({}), &json!({})]), "Guaranteed"),
            (whole(json!({"requests": {"cpu": "1"}}), &[&guaranteed]), "Burstable"),
            (whole(json!({"requests": both}), &[&json!({})]), "Burstable"),
            (whole(json!({"limits": none}), &[&guaranteed]), "BestEffort"),
        ];
        for (spec, class) in table {
            assert_eq!(quality_of_service(&json!({"spec": spec})), class, "{spec}");
        }
    }

    #[test]
    fn overhead_is_added_to_limits_that_there_are() {
        let pod = json!({"spec": {"overhead": {"cpu": "50m", "memory": "1Mi"}, "containers": [
            {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}}]}});
        let shown = |which| -> Vec<String> {
            total_with_overhead(&pod, which).iter().map(|(name, amount)| format!("{name}={amount}")).collect()
        };
        assert_eq!(shown("requests"), ["cpu=150m", "memory=1Mi"]);
        assert_eq!(shown("limits"), ["cpu=250m"]);
    }
}

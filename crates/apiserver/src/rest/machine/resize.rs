//! More processors and memory while the guest runs.

use croft_meta::{ApiError, Quantity, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::acting::Acting;
use super::super::reply::invalid;
use super::VMI;

const HOTPLUG: &str = "harvesterhci.io/enableCPUAndMemoryHotplug";
/// What the node can add at a time.
const MEMORY_STEP: i64 = 128 << 20;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    sockets: u32,
    memory: String,
}

pub(super) async fn hotplug(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Asked = acting.body()?;
    let memory = match asked.memory.as_str() {
        "" => None,
        text => {
            let amount = Quantity::parse(text);
            Some(amount.map_err(|error| invalid("InvalidFormat", format!("memory {text:?}: {error}")))?)
        }
    };
    let instance = acting.find("kubevirt.io", VMI, acting.namespace, acting.name).unwrap_or_default();
    if instance["status"]["phase"] != "Running" {
        return Err(acting.conflict("VM is not running"));
    }
    acting
        .change(|machine| {
            is_possible(machine)?;
            let domain = &mut machine["spec"]["template"]["spec"]["domain"];
            if asked.sockets > 0 {
                more_sockets(domain, asked.sockets)?;
            }
            match &memory {
                Some(memory) => more_memory(domain, memory, &asked.memory),
                None => Ok(()),
            }
        })
        .await
}

/// As Harvester: the machine was made for it, and nothing else of the kind is under way.
fn is_possible(machine: &Value) -> Result<(), ApiError> {
    let refuse = |why: &str| Err(invalid("InvalidAction", format!("CPU and memory hotplug is not possible: {why}")));
    if object::annotation(machine, HOTPLUG) != Some("true") {
        return refuse(&format!("the machine has no annotation {HOTPLUG}: \"true\""));
    }
    let cpu = &machine["spec"]["template"]["spec"]["domain"]["cpu"];
    if ["cores", "threads"].iter().any(|field| cpu[*field].as_u64().unwrap_or(1) > 1) {
        return refuse("cores and threads must be 1");
    }
    let conditions = machine.pointer("/status/conditions").and_then(Value::as_array);
    let busy = ["RestartRequired", "HotVCPUChange", "HotMemoryChange"];
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["status"] == "True" && busy.iter().any(|busy| condition["type"] == *busy));
    match found {
        Some(condition) => refuse(&format!("the machine has the condition {}", condition["type"])),
        None => Ok(()),
    }
}

fn more_sockets(domain: &mut Value, wanted: u32) -> Result<(), ApiError> {
    let count = |field: &str| domain["cpu"][field].as_u64();
    let there = count("sockets").unwrap_or(1);
    let most = count("maxSockets").unwrap_or(there);
    if u64::from(wanted) < there || u64::from(wanted) > most {
        return Err(invalid("InvalidBodyContent", format!("sockets must be at least {there} and at most {most}")));
    }
    domain["cpu"]["sockets"] = json!(wanted);
    Ok(())
}

fn more_memory(domain: &mut Value, wanted: &Quantity, text: &str) -> Result<(), ApiError> {
    let amount = |field: &str| domain["memory"][field].as_str().and_then(|text| Quantity::parse(text).ok());
    let there = amount("guest").unwrap_or_default();
    let most = amount("maxGuest").unwrap_or_else(|| there.clone());
    if *wanted < there || *wanted > most {
        let why = format!("memory must be at least {there} and at most {most}");
        return Err(invalid("InvalidBodyContent", why));
    }
    if (wanted.value() - there.value()) % MEMORY_STEP != 0 {
        let why = format!("memory is added by multiples of 128Mi; there is {there}");
        return Err(invalid("InvalidBodyContent", why));
    }
    domain["memory"]["guest"] = json!(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_grows_up_to_its_limits() {
        let domain = json!({"cpu": {"sockets": 2, "maxSockets": 4}, "memory": {"guest": "1Gi", "maxGuest": "4Gi"}});
        for (sockets, fits) in [(1, false), (2, true), (4, true), (5, false)] {
            assert_eq!(more_sockets(&mut domain.clone(), sockets).is_ok(), fits, "{sockets}");
        }
        for (memory, fits) in [("512Mi", false), ("1Gi", true), ("2Gi", true), ("1500Mi", false), ("5Gi", false)] {
            let wanted = Quantity::parse(memory).unwrap();
            assert_eq!(more_memory(&mut domain.clone(), &wanted, memory).is_ok(), fits, "{memory}");
        }
    }

    #[test]
    fn only_machines_that_were_made_for_it_grow() {
        let machine = |annotation: &str, cores: u32, condition: &str| {
            json!({
                "metadata": {"annotations": {HOTPLUG: annotation}},
                "spec": {"template": {"spec": {"domain": {"cpu": {"cores": cores}}}}},
                "status": {"conditions": [{"type": condition, "status": "True"}]},
            })
        };
        is_possible(&machine("true", 1, "Ready")).unwrap();
        for refused in
            [machine("false", 1, "Ready"), machine("true", 2, "Ready"), machine("true", 1, "RestartRequired")]
        {
            assert_eq!(is_possible(&refused).unwrap_err().code(), 422);
        }
    }
}

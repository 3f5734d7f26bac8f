//! What a RuntimeClass gives the pods that name it: upstream's admission plugin `RuntimeClass`, without the scheduling, since
//! nothing here schedules pods.

use serde_json::Value;

use crate::pod_resources::amounts;
use crate::view::{get, map, set, text};

/// The class that a pod names.
pub fn named(pod: &Value) -> Option<&str> {
    Some(text(pod, "spec.runtimeClassName")).filter(|name| !name.is_empty())
}

/// What is said of a pod whose class is not there.
pub fn not_found(name: &str) -> String {
    format!("pod rejected: RuntimeClass {} not found", croft_meta::field::go_quote(name))
}

/// Has a new pod take what running it in its class takes beside it, which nobody else decides.
pub fn fill_overhead(pod: &mut Value, class: Option<&Value>) -> Result<(), &'static str> {
    let said = get(pod, "spec.overhead").filter(|said| !said.is_null());
    let Some(overhead) = class.and_then(|class| get(class, "overhead")).filter(|overhead| !overhead.is_null()) else {
        return match said {
            Some(_) => Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
            None => Ok(()),
        };
    };
    if said.is_some() && amounts(map(pod, "spec.overhead")) != amounts(map(overhead, "podFixed")) {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
    }
    if let Some(fixed) = get(overhead, "podFixed").filter(|fixed| !fixed.is_null()) {
        set(pod, "spec.overhead", fixed.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn overhead_is_what_the_class_says() {
        let class = json!({"handler": "h", "overhead": {"podFixed": {"cpu": "500m"}}});
        let bare = json!({"handler": "h"});
        let table = [
            (Value::Null, None, Ok(Value::Null)),
            (Value::Null, Some(&bare), Ok(Value::Null)),
            (Value::Null, Some(&class), Ok(json!({"cpu": "500m"}))),
            (json!({"cpu": "0.5"}), Some(&class), Ok(json!({"cpu": "500m"}))),
            (json!({"cpu": "1"}), Some(&class), Err("doesn't match")),
            (json!({"cpu": "1"}), Some(&bare), Err("without corresponding")),
            (json!({"cpu": "1"}), None, Err("without corresponding")),
        ];
        for (said, class, wanted) in table {
            let mut pod = json!({"spec": {"overhead": said}});
            match (fill_overhead(&mut pod, class), wanted) {
                (Ok(()), Ok(wanted)) => assert_eq!(pod["spec"]["overhead"], wanted),
                (Err(why), Err(words)) => assert!(why.contains(words), "{why}"),
                (got, wanted) => panic!("{got:?} is not {wanted:?}"),
            }
        }
    }
}

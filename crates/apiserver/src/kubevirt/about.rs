//! What the group has to say about itself: its version, its health, and what it offers.

use croft_meta::ApiError;
use serde_json::{Value, json};

use super::{Kind, VERSIONS};
use crate::answer::{self, Answer};
use crate::call::Call;
use crate::paths;
use crate::pipeline::not_allowed;

/// The KubeVirt whose behaviour this follows.
pub(crate) const KUBEVIRT_VERSION: &str = "v1.7.0";

/// One thing to do with a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subresource {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) verb: &'static str,
    /// A connection rather than an answer.
    pub(super) is_stream: bool,
}

const fn put(kind: Kind, name: &'static str) -> Subresource {
    Subresource { kind, name, verb: "update", is_stream: false }
}

const fn get(kind: Kind, name: &'static str) -> Subresource {
    Subresource { kind, name, verb: "get", is_stream: false }
}

const fn stream(kind: Kind, name: &'static str) -> Subresource {
    Subresource { kind, name, verb: "get", is_stream: true }
}

/// All of them, as discovery lists them.
pub(super) const SUBRESOURCES: &[Subresource] = &[
    stream(Kind::Vmi, "vnc"),
    get(Kind::Vmi, "vnc/screenshot"),
    stream(Kind::Vmi, "console"),
    stream(Kind::Vmi, "usbredir"),
    stream(Kind::Vmi, "vsock"),
    stream(Kind::Vmi, "portforward"),
    put(Kind::Vmi, "backup"),
    put(Kind::Vmi, "redefine-checkpoint"),
    put(Kind::Vmi, "pause"),
    put(Kind::Vmi, "unpause"),
    put(Kind::Vmi, "freeze"),
    put(Kind::Vmi, "unfreeze"),
    put(Kind::Vmi, "reset"),
    put(Kind::Vmi, "softreboot"),
    put(Kind::Vm, "start"),
    put(Kind::Vm, "stop"),
    put(Kind::Vm, "restart"),
    put(Kind::Vm, "migrate"),
    put(Kind::Vm, "addvolume"),
    put(Kind::Vm, "removevolume"),
    put(Kind::Vm, "memorydump"),
    put(Kind::Vm, "removememorydump"),
    get(Kind::Vm, "expand-spec"),
    get(Kind::Vm, "objectgraph"),
    stream(Kind::Vm, "portforward"),
    put(Kind::Vm, "evacuate/cancel"),
    get(Kind::Vmi, "guestosinfo"),
    get(Kind::Vmi, "userlist"),
    get(Kind::Vmi, "filesystemlist"),
    // Ours: what the serial console has said.
    get(Kind::Vmi, "log"),
    put(Kind::Vmi, "addvolume"),
    put(Kind::Vmi, "removevolume"),
    get(Kind::Vmi, "objectgraph"),
    get(Kind::Vmi, "sev/fetchcertchain"),
    get(Kind::Vmi, "sev/querylaunchmeasurement"),
    put(Kind::Vmi, "sev/setupsession"),
    put(Kind::Vmi, "sev/injectlaunchsecret"),
    put(Kind::Vmi, "evacuate/cancel"),
];

/// The entries of the group's APIResourceList. As KubeVirt's they have neither kind nor verbs: they are there to be
/// found, and no client can do with them what it does with resources.
pub(crate) fn listed() -> Vec<Value> {
    let entry = |name: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": []});
    let subresources = SUBRESOURCES.iter().map(|s| entry(&format!("{}/{}", s.kind.plural(), s.name)));
    std::iter::once(entry("expand-vm-spec")).chain(subresources).collect()
}

pub(super) fn answer(call: &Call, what: &str) -> Result<Answer, ApiError> {
    let body = match what {
        "version" => version(),
        // Where virtctl finds the image of the tools that it runs beside a claim.
        "guestfs" => json!({
            "registry": "quay.io/kubevirt", "tag": KUBEVIRT_VERSION, "digest": "", "imagePrefix": "", "gsImage": "",
        }),
        "healthz" => json!({"apiserver": {"connectivity": "ok", "version": paths::version()}}),
        "start-cluster-profiler" | "stop-cluster-profiler" | "dump-cluster-profiler" => {
            let why = "\"ClusterProfiler\" feature gate must be enabled";
            return Err(ApiError::forbidden(super::GROUP, what, "", why));
        }
        _ => return Err(ApiError::no_such_path()),
    };
    // Without a name, a GET reads as a list.
    if call.info.verb == "list" { Ok(answer::json(200, &body)) } else { Err(not_allowed()) }
}

fn version() -> Value {
    let platform = paths::version()["platform"].clone();
    json!({
        "gitVersion": KUBEVIRT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": platform,
    })
}

/// The names and versions of the group, best first.
pub(crate) fn group() -> (&'static str, &'static [&'static str]) {
    (super::GROUP, &VERSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subresource_is_listed_once() {
        let listed = listed();
        let mut names: Vec<&str> = listed.iter().filter_map(|entry| entry["name"].as_str()).collect();
        assert!(names.contains(&"virtualmachines/start") && names.contains(&"virtualmachineinstances/vnc/screenshot"));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

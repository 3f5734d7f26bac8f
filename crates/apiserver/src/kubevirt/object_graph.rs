//! What a machine is made of: the other objects that it needs, as a tree.
//!
//! Only names are told, and only those that the machine's own object has; whoever may read that learns nothing new.

use croft_meta::{ApiError, selector::LabelSelector};
use serde::Deserialize;
use serde_json::{Value, json};

use super::machine::text;
use super::request_body::options;
use super::{Kind, fetch};
use crate::answer::{self, Answer};
use crate::call::Call;

const DEPENDENCY: &str = "kubevirt.io/dependency-type";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectGraphOptions {
    include_optional_nodes: Option<bool>,
    label_selector: Option<Value>,
}

pub(super) async fn answer(call: &Call, kind: Kind) -> Result<Answer, ApiError> {
    let machine = fetch(call, kind).await?;
    let asked: ObjectGraphOptions = options(call)?;
    let selector = asked.label_selector.as_ref().filter(|selector| !selector.is_null());
    let selector = selector.map(LabelSelector::from_json).transpose();
    let selector = selector.map_err(|error| ApiError::bad_request(format!("labelSelector: {error}")))?;
    let is_wanted = |node: &Node| {
        (!node.is_optional || asked.include_optional_nodes != Some(false))
            && selector.as_ref().is_none_or(|selector| selector.matches(|key| (key == DEPENDENCY).then_some(node.ty)))
    };
    let root =
        Node { children: parts(&machine, kind), ..Node::of(kind.plural(), &call.info.name, &call.info.namespace) };
    Ok(answer::json(200, &root.to_json(&is_wanted)))
}

/// One object.
#[derive(Clone, Debug)]
struct Node {
    group: &'static str,
    kind: &'static str,
    /// What the machine needs it for.
    ty: &'static str,
    name: String,
    namespace: String,
    is_optional: bool,
    children: Vec<Node>,
}

impl Node {
    fn of(plural: &str, name: &str, namespace: &str) -> Self {
        let (group, kind, ty) = match plural {
            "virtualmachines" => ("kubevirt.io", "VirtualMachine", "compute"),
            "virtualmachineinstances" => ("kubevirt.io", "VirtualMachineInstance", "compute"),
            "virtualmachineinstancetypes" => ("instancetype.kubevirt.io", "VirtualMachineInstancetype", "config"),
            "virtualmachineclusterinstancetypes" => {
                ("instancetype.kubevirt.io", "VirtualMachineClusterInstancetype", "config")
            }
            "virtualmachinepreferences" => ("instancetype.kubevirt.io", "VirtualMachinePreference", "config"),
            "virtualmachineclusterpreferences" => {
                ("instancetype.kubevirt.io", "VirtualMachineClusterPreference", "config")
            }
            "controllerrevisions" => ("apps", "ControllerRevision", "config"),
            "datavolumes" => ("cdi.kubevirt.io", "DataVolume", "storage"),
            "persistentvolumeclaims" => ("", "PersistentVolumeClaim", "storage"),
            "configmaps" => ("", "ConfigMap", "config"),
            "serviceaccounts" => ("", "ServiceAccount", "config"),
            "networkattachmentdefinitions" => ("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "network"),
            _ => ("", "Secret", "config"),
        };
        let (name, namespace) = (name.to_owned(), namespace.to_owned());
        Self { group, kind, ty, name, namespace, is_optional: false, children: Vec::new() }
    }

    fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    fn to_json(&self, is_wanted: &impl Fn(&Self) -> bool) -> Value {
        let mut node = json!({
            "objectReference": {
                "apiGroup": self.group, "kind": self.kind, "name": self.name, "namespace": self.namespace,
            },
            "labels": { DEPENDENCY: self.ty },
        });
        if self.is_optional {
            node["optional"] = json!(true);
        }
        let children: Vec<Value> =
            self.children.iter().filter(|child| is_wanted(child)).map(|child| child.to_json(is_wanted)).collect();
        if !children.is_empty() {
            node["children"] = json!(children);
        }
        node
    }
}

fn parts(machine: &Value, kind: Kind) -> Vec<Node> {
    let namespace = text(machine, "/metadata/namespace");
    let mut nodes = Vec::new();
    let spec = match kind {
        Kind::Vmi => machine.pointer("/spec"),
        Kind::Vm => {
            if machine.pointer("/status/created") == Some(&Value::Bool(true)) {
                nodes.push(Node::of("virtualmachineinstances", text(machine, "/metadata/name"), namespace));
            }
            nodes.extend(matched(machine, "instancetype", "virtualmachineclusterinstancetype", namespace));
            nodes.extend(matched(machine, "preference", "virtualmachineclusterpreference", namespace));
            machine.pointer("/spec/template/spec")
        }
    };
    let Some(spec) = spec else { return nodes };
    let list = |field: &str| spec.get(field).and_then(Value::as_array).into_iter().flatten();
    for credential in list("accessCredentials") {
        for field in ["sshPublicKey", "userPassword"] {
            let name = text(credential, &format!("/{field}/source/secret/secretName"));
            nodes.extend(named("secrets", name, namespace));
        }
    }
    nodes.extend(list("volumes").flat_map(|volume| of_volume(volume, namespace)));
    for network in list("networks") {
        let name = text(network, "/multus/networkName");
        let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
        nodes.extend(named("networkattachmentdefinitions", name, namespace).map(Node::optional));
    }
    nodes
}

fn named(plural: &str, name: &str, namespace: &str) -> Option<Node> {
    (!name.is_empty()).then(|| Node::of(plural, name, namespace))
}

/// The instancetype or preference, and the revision of it that the machine was made with.
fn matched(vm: &Value, field: &str, default_kind: &str, namespace: &str) -> Vec<Node> {
    let Some(matcher) = vm.pointer(&format!("/spec/{field}")).filter(|matcher| matcher.is_object()) else {
        return Vec::new();
    };
    let kind = text(matcher, "/kind").to_lowercase();
    let kind = if kind.is_empty() { default_kind.to_owned() } else { kind };
    let namespace_of_it = if kind.contains("cluster") { "" } else { namespace };
    let plural = format!("{}s", kind.trim_end_matches('s'));
    let mut nodes: Vec<Node> =
        named(&plural, text(matcher, "/name"), namespace_of_it).map(Node::optional).into_iter().collect();
    let revision = text(vm, &format!("/status/{field}Ref/controllerRevisionRef/name"));
    let revision = if revision.is_empty() { text(matcher, "/revisionName") } else { revision };
    nodes.extend(named("controllerrevisions", revision, namespace));
    nodes
}

fn of_volume(volume: &Value, namespace: &str) -> Vec<Node> {
    if let Some(node) = named("datavolumes", text(volume, "/dataVolume/name"), namespace) {
        let claim = Node::of("persistentvolumeclaims", &node.name, namespace);
        return vec![Node { children: vec![claim], ..node }];
    }
    let sources = [
        ("persistentvolumeclaims", "/persistentVolumeClaim/claimName"),
        ("configmaps", "/configMap/name"),
        ("secrets", "/secret/secretName"),
        ("serviceaccounts", "/serviceAccount/serviceAccountName"),
        ("secrets", "/cloudInitNoCloud/secretRef/name"),
        ("secrets", "/cloudInitNoCloud/networkDataSecretRef/name"),
        ("secrets", "/cloudInitConfigDrive/secretRef/name"),
        ("secrets", "/cloudInitConfigDrive/networkDataSecretRef/name"),
    ];
    sources.iter().filter_map(|(plural, pointer)| named(plural, text(volume, pointer), namespace)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_a_tree_of_what_it_needs() {
        let vm = json!({
            "metadata": {"name": "vm", "namespace": "ns"},
            "spec": {
                "instancetype": {"name": "large"},
                "preference": {"name": "linux", "kind": "VirtualMachinePreference", "revisionName": "linux-1"},
                "template": {"spec": {
                    "volumes": [
                        {"name": "a", "dataVolume": {"name": "dv"}},
                        {"name": "b", "cloudInitNoCloud": {"secretRef": {"name": "s"}}},
                        {"name": "c", "containerDisk": {"image": "x"}},
                    ],
                    "networks": [{"name": "n", "multus": {"networkName": "other/net"}}, {"name": "p", "pod": {}}],
                    "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}}}],
                }},
            },
            "status": {"created": true, "instancetypeRef": {"controllerRevisionRef": {"name": "large-7"}}},
        });
        let root = Node { children: parts(&vm, Kind::Vm), ..Node::of("virtualmachines", "vm", "ns") };
        let flat: Vec<String> = root
            .children
            .iter()
            .map(|n| format!("{}/{}/{}{}", n.kind, n.namespace, n.name, if n.is_optional { "?" } else { "" }))
            .collect();
        assert_eq!(
            flat,
            [
                "VirtualMachineInstance/ns/vm",
                "VirtualMachineClusterInstancetype//large?",
                "ControllerRevision/ns/large-7",
                "VirtualMachinePreference/ns/linux?",
                "ControllerRevision/ns/linux-1",
                "Secret/ns/keys",
                "DataVolume/ns/dv",
                "Secret/ns/s",
                "NetworkAttachmentDefinition/other/net?",
            ]
        );
        let storage = root.to_json(&|node| node.ty == "storage");
        assert_eq!(storage["children"].as_array().unwrap().len(), 1);
        assert_eq!(storage["children"][0]["children"][0]["objectReference"]["kind"], "PersistentVolumeClaim");
    }
}

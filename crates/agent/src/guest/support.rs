//! Whether the agent in a guest can do what KubeVirt's users expect of it.

use croft_api::kubevirt::VirtualMachineInstanceSpec;

const BASIC: &[&str] = &[
    "guest-ping",
    "guest-get-time",
    "guest-info",
    "guest-shutdown",
    "guest-network-get-interfaces",
    "guest-get-fsinfo",
    "guest-get-host-name",
    "guest-get-users",
    "guest-get-timezone",
    "guest-get-osinfo",
];
const KEYS: &[&str] = &["guest-ssh-add-authorized-keys"];
const PASSWORDS: &[&str] = &["guest-set-user-password"];

/// What the agent lacks for this guest, in KubeVirt's words; nothing if it will do.
pub(super) fn lack(commands: &[String], spec: &VirtualMachineInstanceSpec) -> Option<&'static str> {
    let has = |needed: &[&str]| needed.iter().all(|name| commands.iter().any(|command| command == name));
    let credentials = &spec.access_credentials;
    let keys = credentials.iter().filter_map(|one| one.ssh_public_key.as_ref());
    let needs_keys = keys.into_iter().any(|key| key.propagation_method.qemu_guest_agent.is_some());
    let passwords = credentials.iter().filter_map(|one| one.user_password.as_ref());
    let needs_passwords = passwords.into_iter().any(|one| one.propagation_method.qemu_guest_agent.is_some());
    if !has(BASIC) {
        return Some("This guest agent doesn't support required basic commands");
    }
    if needs_keys && !has(KEYS) {
        return Some("This guest agent doesn't support required public key commands");
    }
    if needs_passwords && !has(PASSWORDS) {
        return Some("This guest agent doesn't support required password commands");
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_must_know_what_its_guest_needs() {
        let spec = |credentials: serde_json::Value| -> VirtualMachineInstanceSpec {
            serde_json::from_value(json!({"domain": {"devices": {}}, "accessCredentials": credentials})).unwrap()
        };
        let source = json!({"secret": {"secretName": "s"}});
        let plain = spec(json!([]));
        let keys = spec(json!([{"sshPublicKey": {"source": source,
            "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}}]));
        let password = spec(json!([{"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}]));
        let commands = |lists: &[&[&str]]| -> Vec<String> {
            lists.iter().copied().flatten().map(|name| (*name).to_owned()).collect()
        };
        let cases = [
            (commands(&[BASIC]), &plain, None),
            (commands(&[&BASIC[1..]]), &plain, Some("basic")),
            (commands(&[BASIC]), &keys, Some("public key")),
            (commands(&[BASIC, KEYS]), &keys, None),
            (commands(&[BASIC, KEYS]), &password, Some("password")),
            (commands(&[BASIC, PASSWORDS]), &password, None),
        ];
        for (commands, spec, expected) in cases {
            let found = lack(&commands, spec);
            assert_eq!(found.is_some(), expected.is_some(), "{commands:?}");
            assert!(expected.is_none_or(|word| found.unwrap_or_default().contains(word)), "{found:?}");
        }
    }
}

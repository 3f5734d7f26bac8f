//! Which processors QEMU can show to a guest on this machine.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Some hundred models of a few hundred bytes each.
const MAX_ANSWER: u64 = 4 << 20;
/// Kept by QEMU for old guests; no scheduler should look for them.
const OBSOLETE: [&str; 17] = [
    "486",
    "athlon",
    "Conroe",
    "core2duo",
    "coreduo",
    "kvm32",
    "kvm64",
    "n270",
    "Opteron_G1",
    "Opteron_G2",
    "Penryn",
    "pentium",
    "pentium2",
    "pentium3",
    "phenom",
    "qemu32",
    "qemu64",
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Definition {
    name: String,
    /// Absent means that QEMU cannot tell.
    #[serde(default)]
    unavailable_features: Option<Vec<String>>,
    #[serde(default)]
    deprecated: bool,
}

/// The names of the models that a guest would get whole.
pub(super) async fn usable(qemu: &Path, has_kvm: bool) -> Result<Vec<String>, String> {
    let mut child = Command::new(qemu)
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "none"])
        .args(["-accel", if has_kvm { "kvm" } else { "tcg" }, "-qmp", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let answer = timeout(TIMEOUT, ask(&mut child)).await.map_err(|_| format!("no answer within {TIMEOUT:?}"))??;
    let definitions: Vec<Definition> = serde_json::from_value(answer).map_err(|error| error.to_string())?;
    Ok(names(definitions))
}

async fn ask(child: &mut Child) -> Result<Value, String> {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("QEMU has no standard streams".to_owned());
    };
    let commands = ["qmp_capabilities", "query-cpu-definitions", "quit"];
    for (id, command) in commands.iter().enumerate() {
        let line = format!("{}\n", json!({ "execute": command, "id": id }));
        stdin.write_all(line.as_bytes()).await.map_err(|error| error.to_string())?;
    }
    let mut lines = BufReader::new(stdout.take(MAX_ANSWER)).lines();
    while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
        let mut message: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        if message["id"] == 1 {
            // Ends once the rest is read; the child is reaped by the runtime.
            return Ok(message["return"].take());
        }
    }
    Err("QEMU ended without an answer".to_owned())
}

fn names(definitions: Vec<Definition>) -> Vec<String> {
    let is_whole = |d: &Definition| d.unavailable_features.as_ref().is_some_and(Vec::is_empty);
    let is_concrete = |d: &Definition| {
        // `Haswell-v1` is what `Haswell` is an alias of; users write the latter.
        let is_version =
            d.name.rsplit_once("-v").is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        !is_version && !d.deprecated && !matches!(d.name.as_str(), "host" | "max" | "base")
    };
    let mut names: Vec<String> = definitions
        .into_iter()
        .filter(|definition| is_whole(definition) && is_concrete(definition))
        .map(|d| d.name)
        .filter(|name| !OBSOLETE.contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_models_of_today_are_named() {
        let definition = |name: &str, missing: Option<&[&str]>| Definition {
            name: name.to_owned(),
            unavailable_features: missing.map(|m| m.iter().map(ToString::to_string).collect()),
            deprecated: false,
        };
        let found = names(vec![
            definition("Nehalem", Some(&[])),
            definition("Haswell-v1", Some(&[])),
            definition("Haswell", Some(&["avx2"])),
            definition("EPYC-Rome", Some(&[])),
            definition("max", Some(&[])),
            definition("qemu64", Some(&[])),
            definition("Unknown", None),
        ]);
        assert_eq!(found, ["EPYC-Rome", "Nehalem"]);
    }
}

//! `write_files` and the commands of a cloud-config.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::seed::{text, texts};
use crate::{accounts, execute, report};

pub fn write_all(files: Option<&Value>) {
    for file in files.and_then(Value::as_array).into_iter().flatten() {
        let path = file.get("path").and_then(text).unwrap_or_default();
        report(&format!("write_files: {path}"), write(file, &path));
    }
}

fn write(file: &Value, path: &str) -> io::Result<()> {
    let content = file.get("content").and_then(text).unwrap_or_default();
    let encoding = file.get("encoding").and_then(text).unwrap_or_default();
    let bytes = decode(&content, &encoding)?;
    let mode = mode(file.get("permissions"))?;
    if let Some(directory) = Path::new(path).parent() {
        fs::create_dir_all(directory)?;
    }
    let is_appended = file.get("append").and_then(Value::as_bool).unwrap_or(false);
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(is_appended).truncate(!is_appended);
    options.open(path)?.write_all(&bytes)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    if let Some(owner) = file.get("owner").and_then(text) {
        let name = owner.split(':').next().unwrap_or_default();
        let (id, _) =
            accounts::find(name).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no user {name}")))?;
        chown(path, Some(id), Some(id))?;
    }
    Ok(())
}

/// Base64 and gzip, alone or both, by all the names that cloud-init has for them.
fn decode(content: &str, encoding: &str) -> io::Result<Vec<u8>> {
    let steps: &[(&str, &str)] = match encoding {
        "" | "text/plain" => &[],
        "b64" | "base64" => &[("base64", "-d")],
        "gz+base64" | "gzip+base64" | "gz+b64" | "gzip+b64" => &[("base64", "-d"), ("gunzip", "-c")],
        other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("encoding {other}"))),
    };
    steps.iter().try_fold(content.as_bytes().to_vec(), |bytes, (program, option)| filter(program, option, &bytes))
}

fn filter(program: &str, option: &str, input: &[u8]) -> io::Result<Vec<u8>> {
    let mut child = Command::new(program).arg(option).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take();
    // From a thread of its own, or both sides wait for room in their pipes.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    })?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(io::Error::other(format!("{program}: {}", output.status)))
    }
}

/// Octal digits. A mode without quotes is a number to YAML: its digits are meant, not its value.
fn mode(permissions: Option<&Value>) -> io::Result<u32> {
    let digits = match permissions {
        None => return Ok(0o644),
        Some(Value::Number(number)) => number.as_f64().map(|number| format!("{number:.0}")),
        Some(other) => text(other),
    };
    let digits = digits.unwrap_or_default();
    u32::from_str_radix(digits.trim_start_matches("0o"), 8)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("permissions {digits:?}")))
}

/// Each command is a line for the shell, or a list of words.
pub fn run_all(commands: Option<&Value>) {
    for command in commands.and_then(Value::as_array).into_iter().flatten() {
        match command {
            Value::Array(_) => {
                let words = texts(Some(command));
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if let Some((program, arguments)) = words.split_first() {
                    execute(program, arguments);
                }
            }
            line => {
                execute("sh", &["-c", &text(line).unwrap_or_default()]);
            }
        }
    }
}

/// User data that is a script by itself.
pub fn run_script(script: &str) {
    let path = "/var/lib/cloud/script";
    let written = fs::write(path, script).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)));
    report(path, written);
    execute(path, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mode_is_its_octal_digits_quoted_or_not() {
        for (written, meant) in
            [(json!("0600"), 0o600), (json!("0o755"), 0o755), (json!(640), 0o640), (json!(644.0), 0o644)]
        {
            assert_eq!(mode(Some(&written)).expect("a mode"), meant, "{written}");
        }
        assert_eq!(mode(None).expect("a mode"), 0o644);
        assert!(mode(Some(&json!("rw"))).is_err());
    }

    #[test]
    fn content_may_be_encoded() {
        assert_eq!(decode("aGk=", "b64").expect("decodes"), b"hi");
        assert_eq!(decode("hi", "").expect("decodes"), b"hi");
        assert!(decode("hi", "rot13").is_err());
    }
}

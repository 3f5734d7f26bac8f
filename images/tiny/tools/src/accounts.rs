//! Users, passwords and SSH keys of a cloud-config.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::Path;

use serde_json::{Map, Value};

use crate::seed::{text, texts};
use crate::{execute_with, report};

/// Makes the users, and gives keys and passwords to them and to the default user, who is root unless `user` names another.
pub fn apply(config: &Map<String, Value>, metadata_keys: &[String]) {
    let default = match config.get("user") {
        Some(Value::Object(user)) => user.get("name").and_then(text),
        Some(name) => text(name),
        None => None,
    };
    let default = default.unwrap_or_else(|| "root".to_owned());
    report(&default, ensure(&default, None));

    let mut keys = metadata_keys.to_vec();
    keys.extend(texts(config.get("ssh_authorized_keys")));
    report("authorized_keys", add_keys(&default, &keys));
    if let Some(password) = config.get("password").and_then(text) {
        set_password(&default, &password);
    }

    for user in config.get("users").and_then(Value::as_array).into_iter().flatten() {
        match user {
            Value::String(name) if name == "default" => {}
            Value::String(name) => report(name, ensure(name, None)),
            user => add_user(user),
        }
    }
    passwords(config.get("chpasswd"));
    if config.get("ssh_pwauth").and_then(text).is_some_and(|said| matches!(said.as_str(), "true" | "yes" | "True")) {
        report("passwords", fs::write("/etc/dropbear/passwords", ""));
    }
}

fn add_user(user: &Value) {
    let Some(name) = user.get("name").and_then(text) else {
        eprintln!("cloud-config: a user without a name");
        return;
    };
    report(&name, ensure(&name, user.get("shell").and_then(text)));
    report("authorized_keys", add_keys(&name, &texts(user.get("ssh_authorized_keys"))));
    if let Some(password) = user.get("plain_text_passwd").and_then(text) {
        set_password(&name, &password);
    }
    for field in ["passwd", "hashed_passwd"] {
        if let Some(hash) = user.get(field).and_then(text) {
            execute_with("chpasswd", &["-e"], &format!("{name}:{hash}\n"));
        }
    }
    for field in ["sudo", "groups"] {
        if user.get(field).is_some() {
            eprintln!("cloud-config: user {name}: {field} is not supported by this guest");
        }
    }
}

/// `list` as text or as a list of `name:password`, and `users` with a type.
fn passwords(chpasswd: Option<&Value>) {
    let Some(chpasswd) = chpasswd else { return };
    let lines = texts(chpasswd.get("list")).join("\n");
    for (name, password) in lines.lines().filter_map(|line| line.split_once(':')) {
        set_password(name.trim(), password);
    }
    for user in chpasswd.get("users").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(name), Some(password)) = (user.get("name").and_then(text), user.get("password").and_then(text)) {
            match user.get("type").and_then(text).as_deref() {
                Some("text") => execute_with("chpasswd", &[], &format!("{name}:{password}\n")),
                _ => set_password(&name, &password),
            }
        }
    }
}

/// What looks like a hash is one.
fn set_password(name: &str, password: &str) {
    let is_hash = ["$1$", "$2a$", "$2y$", "$5$", "$6$", "$y$"].iter().any(|kind| password.starts_with(kind));
    let arguments: &[&str] = if is_hash { &["-e"] } else { &[] };
    execute_with("chpasswd", arguments, &format!("{name}:{password}\n"));
}

/// A user's number and home directory.
pub fn find(name: &str) -> Option<(u32, String)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let number = fields.nth(1)?.parse().ok()?;
        Some((number, fields.nth(2)?.to_owned()))
    })
}

fn ensure(name: &str, shell: Option<String>) -> io::Result<()> {
    let is_sane = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !is_sane {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name for a user"));
    }
    if find(name).is_some() {
        return Ok(());
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let number = 1000 + users.lines().filter(|line| line.split(':').nth(2).is_some_and(|id| id.len() == 4)).count();
    // A shell that the seed names need not be here.
    let shell = shell.filter(|path| Path::new(path).exists()).unwrap_or_else(|| "/bin/sh".to_owned());
    append("/etc/passwd", &format!("{name}:x:{number}:{number}::/home/{name}:{shell}\n"))?;
    append("/etc/group", &format!("{name}:x:{number}:\n"))?;
    append("/etc/shadow", &format!("{name}:!:20000:0:99999:7:::\n"))?;
    let home = format!("/home/{name}");
    fs::create_dir_all(&home)?;
    let id = u32::try_from(number).ok();
    chown(home, id, id)
}

fn append(path: &str, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())
}

fn add_keys(name: &str, keys: &[String]) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let (id, home) = find(name).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no user {name}")))?;
    let directory = format!("{home}/.ssh");
    if !Path::new(&directory).exists() {
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
    }
    let path = format!("{directory}/authorized_keys");
    let present = fs::read_to_string(&path).unwrap_or_default();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    for key in keys.iter().map(|key| key.trim()).filter(|key| !present.lines().any(|line| line == *key)) {
        writeln!(file, "{key}")?;
    }
    chown(&directory, Some(id), Some(id))?;
    chown(&path, Some(id), Some(id))
}

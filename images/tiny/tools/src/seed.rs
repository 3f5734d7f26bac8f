//! Reads a seed: NoCloud's `user-data`, `meta-data` and `network-config`, or ConfigDrive's `openstack/latest`.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// What the user data turned out to be.
#[derive(Debug, PartialEq)]
pub enum UserData {
    None,
    CloudConfig(Value),
    Script(String),
    /// A kind that this guest does not know, by its first line.
    Unknown(String),
}

#[derive(Debug)]
pub struct Seed {
    pub instance: String,
    pub hostname: Option<String>,
    pub keys: Vec<String>,
    pub user_data: UserData,
    pub network: Value,
}

impl Seed {
    pub fn read(directory: &Path) -> Self {
        let drive = directory.join("openstack/latest");
        let (user, meta, network) = if drive.is_dir() {
            (drive.join("user_data"), drive.join("meta_data.json"), drive.join("network_data.json"))
        } else {
            (directory.join("user-data"), directory.join("meta-data"), directory.join("network-config"))
        };
        let meta = document(&meta);
        let user_data = user_data(&fs::read_to_string(user).unwrap_or_default());
        let config = match &user_data {
            UserData::CloudConfig(config) => config.clone(),
            _ => Value::Null,
        };
        let hostname = first_text(&config, &["hostname", "fqdn"])
            .or_else(|| first_text(&meta, &["local-hostname", "local_hostname", "hostname"]))
            .map(|name| name.split('.').next().unwrap_or_default().to_owned());
        Self {
            instance: first_text(&meta, &["instance-id", "instance_id", "uuid"])
                .unwrap_or_else(|| "nocloud".to_owned()),
            hostname: hostname.filter(|name| !name.is_empty()),
            keys: public_keys(&meta),
            user_data,
            network: document(&network),
        }
    }

    /// The cloud-config, empty when the user data is none.
    pub fn config(&self) -> Map<String, Value> {
        match &self.user_data {
            UserData::CloudConfig(Value::Object(config)) => config.clone(),
            _ => Map::new(),
        }
    }
}

/// A YAML file, which JSON is too. Nothing when there is none, or when it is damaged.
fn document(path: &Path) -> Value {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text, &path.display().to_string()),
        Err(_) => Value::Null,
    }
}

fn parse(text: &str, name: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Null;
    }
    serde_saphyr::from_str(text).unwrap_or_else(|error| {
        eprintln!("cloud-config: {name}: {error}");
        Value::Null
    })
}

fn user_data(text: &str) -> UserData {
    let first = text.lines().next().unwrap_or_default().trim_end();
    if text.trim().is_empty() {
        UserData::None
    } else if first.starts_with("#!") {
        UserData::Script(text.to_owned())
    } else if first.starts_with("#cloud-config") {
        match parse(text, "user-data") {
            Value::Null => UserData::None,
            config => UserData::CloudConfig(config),
        }
    } else {
        UserData::Unknown(first.to_owned())
    }
}

fn first_text(object: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| text(object.get(name)?))
}

/// A scalar as text: people write numbers without quotes.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A list of scalars, or one of them, or nothing.
pub fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items.iter().filter_map(text).collect(),
        Some(value) => text(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Metadata has keys as text, as a list, or as an object of either or of `openssh-key`.
fn public_keys(meta: &Value) -> Vec<String> {
    let keys = meta.get("public-keys").or_else(|| meta.get("public_keys"));
    let each: Vec<&Value> = match keys {
        Some(Value::Object(named)) => named.values().collect(),
        Some(Value::Array(items)) => items.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    };
    let lines = each.into_iter().flat_map(|key| texts(Some(key.get("openssh-key").unwrap_or(key))));
    lines
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| !line.trim().is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tells_kinds_of_user_data_by_the_first_line() {
        assert_eq!(user_data(" \n"), UserData::None);
        assert_eq!(user_data("#!/bin/sh\ntrue\n"), UserData::Script("#!/bin/sh\ntrue\n".into()));
        assert_eq!(user_data("#cloud-config\nhostname: a\n"), UserData::CloudConfig(json!({"hostname": "a"})));
        assert_eq!(user_data("#include\nhttp://a\n"), UserData::Unknown("#include".into()));
        assert_eq!(user_data("#cloud-config\n"), UserData::None);
    }

    #[test]
    fn finds_keys_in_every_form_of_metadata() {
        for meta in [
            json!({"public-keys": ["a", "b"]}),
            json!({"public-keys": "a\nb\n"}),
            json!({"public_keys": {"x": "a", "y": "b"}}),
            json!({"public-keys": {"0": {"openssh-key": "a"}, "1": {"openssh-key": "b"}}}),
        ] {
            assert_eq!(public_keys(&meta), ["a", "b"], "{meta}");
        }
    }
}

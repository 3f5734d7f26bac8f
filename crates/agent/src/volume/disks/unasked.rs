//! Disks that are added without anybody asking for each: those that the setting `auto-disk-provision-paths` matches.

use croft_api::harvester::settings::AUTO_DISK_PATHS;
use croft_api::harvester::{BlockDevice, Setting};
use croft_block::Device;
use croft_meta::Chain;
use kube::{Api, Client};
use regex::Regex;

/// Patterns of paths. None match while the setting cannot be read.
#[derive(Debug, Default)]
pub(super) struct Unasked(Vec<Regex>);

impl Unasked {
    pub(super) async fn read(client: &Client) -> Self {
        let api: Api<Setting> = Api::all(client.clone());
        match api.get_opt(AUTO_DISK_PATHS).await {
            Ok(setting) => Self::parse(setting.as_ref().map(Setting::effective).unwrap_or_default()),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "which disks are to be added cannot be read");
                Self::default()
            }
        }
    }

    /// `/dev/sd*,/dev/nvme?n1`.
    fn parse(setting: &str) -> Self {
        let patterns = setting.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        Self(patterns.filter_map(|pattern| Regex::new(&expression(pattern)).ok()).collect())
    }

    /// Only a disk that is blank, that nobody uses, and that was never given back: whoever takes it out again means it.
    pub(super) fn includes(&self, object: &BlockDevice, device: &Device) -> bool {
        let is_free = device.signature.is_none() && !device.is_used() && !device.is_read_only;
        let was_added = object.status.conditions.iter().any(|condition| condition.type_ == "AddedToNode");
        let path = device.path.to_string_lossy();
        is_free && !was_added && self.0.iter().any(|pattern| pattern.is_match(&path))
    }
}

/// A shell's pattern as a regular expression.
fn expression(pattern: &str) -> String {
    let mut expression = String::from("^");
    let mut is_class = false;
    for c in pattern.chars() {
        match c {
            '*' if !is_class => expression.push_str("[^/]*"),
            '?' if !is_class => expression.push_str("[^/]"),
            '[' | ']' => {
                is_class = c == '[';
                expression.push(c);
            }
            '-' | '^' if is_class => expression.push(c),
            _ => expression.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push('$');
    expression
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_as_a_shell_does() {
        for (setting, path, expected) in [
            ("", "/dev/sda", false),
            ("/dev/sd*", "/dev/sda", true),
            ("/dev/sd*", "/dev/sdaa1", true),
            ("/dev/sd*", "/dev/mapper/sda", false),
            ("/dev/*", "/dev/mapper/sda", false),
            ("/dev/sd?", "/dev/sda1", false),
            ("/dev/hd*, /dev/sd[b-d]", "/dev/sdc", true),
            ("/dev/sd[b-d]", "/dev/sda", false),
            ("/dev/sd[^a]", "/dev/sdb", true),
            ("/dev/s.a", "/dev/sda", false),
            ("/dev/sd[", "/dev/sda", false),
        ] {
            let unasked = Unasked::parse(setting);
            assert_eq!(unasked.0.iter().any(|pattern| pattern.is_match(path)), expected, "{setting} {path}");
        }
    }
}

//! The tables of definitions that are built in.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::facts::Facts;
use super::notation;

const TABLES: &[&str] = &[
    include_str!("../../definitions/cdi.kubevirt.io.txt"),
    include_str!("../../definitions/clone.kubevirt.io.txt"),
    include_str!("../../definitions/devices.harvesterhci.io.txt"),
    include_str!("../../definitions/export.kubevirt.io.txt"),
    include_str!("../../definitions/harvesterhci.io.txt"),
    include_str!("../../definitions/kubevirt.io.txt"),
    include_str!("../../definitions/loadbalancer.harvesterhci.io.txt"),
    include_str!("../../definitions/longhorn.io.txt"),
    include_str!("../../definitions/management.harvesterhci.io.txt"),
    include_str!("../../definitions/metal.harvesterhci.io.txt"),
    include_str!("../../definitions/migration.harvesterhci.io.txt"),
    include_str!("../../definitions/migrations.kubevirt.io.txt"),
    include_str!("../../definitions/network.harvesterhci.io.txt"),
    include_str!("../../definitions/node.harvesterhci.io.txt"),
    include_str!("../../definitions/pool.kubevirt.io.txt"),
    include_str!("../../definitions/snapshot.kubevirt.io.txt"),
    include_str!("../../definitions/snapshot.storage.k8s.io.txt"),
];

/// What is asked of a kind while requests are served; its fields are only read to make its definition.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) has_status: bool,
    pub(super) idle: Option<&'static str>,
    /// The status of objects that nothing acts on, in the words of [`super::told`].
    pub(super) told: Option<&'static str>,
}

/// All kinds of all tables, one table at a time.
pub(super) fn read() -> impl Iterator<Item = Facts> {
    let mut common = HashMap::new();
    TABLES.iter().flat_map(move |text| {
        // They are a part of the program, and a test reads every one of them.
        notation::read(text, &mut common).unwrap_or_else(|error| panic!("table of definitions: {error}"))
    })
}

pub(super) fn find(group: &str, plural: &str) -> Option<&'static Header> {
    headers().iter().find(|header| header.group == group && header.plural == plural)
}

pub(super) fn headers() -> &'static [Header] {
    static HEADERS: LazyLock<Vec<Header>> = LazyLock::new(|| TABLES.iter().flat_map(|text| scan(text)).collect());
    &HEADERS
}

fn scan(text: &'static str) -> Vec<Header> {
    let mut group = "";
    let mut headers: Vec<Header> = Vec::new();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("group", name)) => group = name,
            Some(("kind", rest)) => {
                let mut words = rest.split(' ');
                let (kind, plural) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let has_status = words.any(|word| word == "status");
                headers.push(Header { group, kind, plural, has_status, idle: None, told: None });
            }
            _ => {
                let Some(header) = headers.last_mut() else { continue };
                header.idle = line.strip_prefix(" idle ").or(header.idle);
                header.told = line.strip_prefix(" told ").or(header.told);
            }
        }
    }
    headers
}

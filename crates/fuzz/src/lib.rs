//! What must hold for whatever bytes come in: one target per parser that meets the network, a guest or a foreign file.
//!
//! A target takes any bytes and panics if a promise is broken: that nothing panics is the least of them. Most read what was
//! written back, do things twice, or compare with another way to the same answer. Two drivers run them:
//! - `tests/replay.rs`, an ordinary test: the corpora and all inputs that ever broke something, and a seeded mutator
//!   ([`mutate`]) for a moment each;
//! - libFuzzer, guided by coverage, by `make fuzz`: the programs in `fuzz/`.
//!
//! A target of several parts takes them from one input, separated by [`split`]. For tests alone. Start reading at [`TARGETS`].

mod answers;
mod backups;
mod bodies;
mod disks;
mod expressions;
mod guests;
mod identity;
pub mod mutate;
mod patches;
mod requests;
mod scalars;
mod schemas;
mod selectors;
mod streams;

/// One parser, and what must hold of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($module:ident::$name:ident),* $(,)?) => {
        /// All of them, by name.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $module::$name }),*];
    };
}

targets![
    bodies::json_body,
    bodies::protobuf_body,
    bodies::yaml_body,
    patches::json_patch,
    patches::merge_patch,
    patches::strategic_patch,
    patches::server_side_apply,
    patches::managed_fields,
    selectors::label_selector,
    selectors::field_selector,
    scalars::quantity,
    scalars::time,
    scalars::names,
    scalars::cron,
    expressions::cel_condition,
    expressions::cel_policy,
    schemas::schema,
    schemas::cel_rules,
    requests::request_path,
    requests::query_options,
    requests::continue_token,
    requests::accept,
    requests::jsonpath,
    requests::rest_query,
    requests::audit,
    requests::webhook_answer,
    requests::subscription,
    answers::admission_review,
    answers::conversion_answer,
    answers::discovered,
    answers::resolver_answer,
    answers::qmp,
    identity::bearer_token,
    identity::jwt,
    identity::certificate,
    identity::signing_request,
    identity::issuer_token,
    identity::kubeconfig,
    identity::ssh_key,
    streams::websocket,
    streams::multipart,
    guests::dhcp,
    guests::dns,
    guests::neighbours,
    guests::guest_agent,
    disks::image_format,
    disks::unpack,
    disks::container_layer,
    disks::registry,
    disks::partitions,
    backups::backup_block,
    backups::backup_files,
    backups::backup_target,
    backups::saved_state,
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The parts of an input: a zero byte ends each but the last.
fn split<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut parts = [&data[data.len()..]; N];
    let mut rest = data;
    for (index, part) in parts.iter_mut().enumerate() {
        match rest.iter().position(|byte| *byte == 0) {
            Some(at) if index + 1 < N => (*part, rest) = (&rest[..at], &rest[at + 1..]),
            _ => (*part, rest) = (rest, &[]),
        }
    }
    parts
}

/// Text that a client sent; what is not UTF-8 never gets as far as the parser.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_split_at_zeros() {
        assert_eq!(split(b"a\0b\0c"), [&b"a"[..], b"b\0c"]);
        assert_eq!(split(b"a"), [&b"a"[..], b"", b""]);
        assert_eq!(split(b""), [&b""[..]]);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TARGETS.len());
    }
}

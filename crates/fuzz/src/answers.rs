//! What other programs say: servers that ask us or are asked, resolvers, QEMU.

use croft_apiserver::fuzzing as server;
use croft_meta::json;
use croft_net::fuzzing as net;
use croft_qemu::fuzzing as qemu;
use croft_qemu::qmp::commands::{AddedFd, Block, BlockStats, Migration, Status, VirtualCpu};
use serde_json::Value;

use crate::streams::run;

/// The rules get on with whatever another API server has stored; the patch makes what they made.
pub(crate) fn admission_review(data: &[u8]) {
    let Some(answer) = croft_webhook::fuzzing::answered(data) else { return };
    assert!(answer["response"]["allowed"].is_boolean(), "{answer}");
}

/// A converted object is still the same one.
pub(crate) fn conversion_answer(data: &[u8]) {
    server::conversion_answer(data);
}

/// What a server behind ours serves is told once each, and no more of it than there is.
pub(crate) fn discovered(data: &[u8]) {
    let Ok(list) = json::parse(data) else { return };
    let told = server::discovered(&list);
    assert!(told.len() <= list["resources"].as_array().map_or(0, Vec::len), "{told:?}");
}

/// A guest gets an answer to its own question, as it came but for the number, or none.
pub(crate) fn resolver_answer(data: &[u8]) {
    let (Some(length), Some(rest)) = (data.first(), data.get(1..)) else { return };
    let Some((question, answer)) = rest.split_at_checked(usize::from(*length)) else { return };
    let Some(passed) = net::resolved(question, answer) else { return };
    assert_eq!((passed.get(..2), passed.get(2..)), (question.get(..2), answer.get(2..)));
    assert!(passed.len() >= 12 && passed[2] & 0x80 != 0, "{passed:?}");
}

/// A conversation with QEMU ends when QEMU does; no more events come than lines.
pub(crate) fn qmp(data: &[u8]) {
    let told = run(qemu::qmp(data)).unwrap_or_else(|error| panic!("no socket: {error}"));
    assert!(told.is_none_or(|told| told <= data.split(|byte| *byte == b'\n').count()), "{told:?}");
    for line in data.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let value = || message["return"].clone();
        let _ = serde_json::from_value::<Status>(value());
        let _ = serde_json::from_value::<Vec<VirtualCpu>>(value());
        let _ = serde_json::from_value::<Vec<Block>>(value());
        let _ = serde_json::from_value::<Vec<BlockStats>>(value());
        let _ = serde_json::from_value::<Migration>(value());
        let _ = serde_json::from_value::<AddedFd>(value());
    }
}

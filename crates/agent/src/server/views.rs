//! What is shown of a running machine: its screen, its log, what its agent says.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use croft_qemu::qga::Agent;
use croft_qemu::qmp::commands::Screenshot;
use futures::StreamExt;
use futures::stream;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::json;

use super::actions::{no_agent, of_agent, of_qemu};
use super::answer::{Body, BoxError, Failure, json_of, with_type};
use super::route::{View, is_true, value};
use crate::guest::{Guest, answers};

/// A screen of 64 MiB pixels is larger than any; the picture of it is smaller still.
const MAX_PICTURE: u64 = 256 << 20;
/// Descriptor sets of our own begin here, far from those of disks.
const FIRST_SET: u32 = 1 << 30;

pub(super) async fn answer(guest: &Guest, view: View, query: Option<&str>) -> Result<Response<Body>, Failure> {
    let query = query.unwrap_or_default();
    match view {
        View::GuestOsInfo => {
            let info = answers::guest_info(agent(guest)?).await.map_err(|error| of_agent(guest, &error))?;
            json_of(&info)
        }
        View::UserList => json_of(&answers::user_list(agent(guest)?).await.map_err(|error| of_agent(guest, &error))?),
        View::FilesystemList => {
            json_of(&answers::filesystem_list(agent(guest)?).await.map_err(|error| of_agent(guest, &error))?)
        }
        View::Screenshot => {
            if is_true(query, "moveCursor") {
                wake_screen(guest).await;
            }
            Ok(with_type(StatusCode::OK, "image/png", screenshot(guest).await?))
        }
        View::Log => log(guest, query).await,
    }
}

/// One that was heard of: asking the others would only wait for a silence.
fn agent(guest: &Guest) -> Result<&Agent, Failure> {
    let is_connected = guest.facts().borrow().is_agent_connected;
    guest.agent.as_deref().filter(|_| is_connected).ok_or_else(|| no_agent(guest))
}

/// A screen that has gone dark comes back when the mouse is moved. A machine without one shows what it shows.
async fn wake_screen(guest: &Guest) {
    let to = |axis: &str, value: u32| json!({ "type": "abs", "data": { "axis": axis, "value": value } });
    for position in [1, 0] {
        let events = json!({ "events": [to("x", position), to("y", position)] });
        let _ = guest.qmp.run("input-send-event", events).await;
    }
}

/// QEMU writes into a file in memory that it is handed: it may write nowhere else.
async fn screenshot(guest: &Guest) -> Result<Bytes, Failure> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !guest.has_display {
        return Err(Failure::bad_request("No graphics devices are present."));
    }
    let out_of_memory = |error: std::io::Error| Failure::internal(format!("no room for the picture: {error}"));
    let file = memfd_create("screenshot", MemfdFlags::CLOEXEC).map_err(|error| out_of_memory(error.into()))?;
    // QEMU looks for a descriptor that can be written and no more: the same file, opened once again.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let theirs: OwnedFd = OpenOptions::new().write(true).open(path).map_err(out_of_memory)?.into();
    let set = FIRST_SET | (NEXT.fetch_add(1, Ordering::Relaxed) & 0xffff);
    guest.qmp.add_fd(set, theirs).await.map_err(|error| of_qemu(guest, &error))?;
    let path = PathBuf::from(format!("/dev/fdset/{set}"));
    let taken = guest.qmp.screendump(&path, Screenshot::Png).await;
    // Whether or not there is a picture.
    let _ = guest.qmp.remove_fd(set).await;
    taken.map_err(|error| of_qemu(guest, &error))?;
    let mut file = File::from(file);
    let mut picture = Vec::new();
    file.rewind().and_then(|()| file.take(MAX_PICTURE).read_to_end(&mut picture)).map_err(out_of_memory)?;
    Ok(picture.into())
}

/// `?tailLines=N` and `?follow=true`.
async fn log(guest: &Guest, query: &str) -> Result<Response<Body>, Failure> {
    let Some(console) = &guest.console else { return Err(Failure::bad_request("No serial consoles are present.")) };
    let lines = match value(query, "tailLines") {
        None => None,
        Some(text) => {
            let wrong = |_| Failure::bad_request(format!("tailLines: {text:?} is not a number"));
            Some(text.parse::<usize>().map_err(wrong)?)
        }
    };
    // In this order: what comes in between may be seen twice, but is not lost.
    let following = is_true(query, "follow").then(|| console.follow());
    let past = console.log().await;
    let past = Bytes::copy_from_slice(tail(&past, lines));
    let Some(following) = following else {
        return Ok(with_type(StatusCode::OK, "text/plain; charset=utf-8", past));
    };
    let next = stream::unfold(following, |mut said| async move { said.recv().await.map(|chunk| (chunk, said)) });
    let chunks = stream::once(std::future::ready(past)).chain(next);
    let frames = chunks.map(|chunk| Ok::<_, BoxError>(Frame::data(chunk)));
    let mut response = with_type(StatusCode::OK, "text/plain; charset=utf-8", Bytes::new());
    *response.body_mut() = BodyExt::boxed_unsync(StreamBody::new(frames));
    Ok(response)
}

/// The last lines, or all.
fn tail(text: &[u8], lines: Option<usize>) -> &[u8] {
    let Some(lines) = lines else { return text };
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    if lines == 0 {
        return &[];
    }
    let starts = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match starts.map(|(index, _)| index + 1).nth(lines - 1) {
        Some(start) => &text[start..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", Some(2), "b\nc\n"),
            ("a\nb\nc", Some(1), "c"),
            ("a\nb\n", Some(9), "a\nb\n"),
            ("a\n", Some(0), ""),
            ("a\nb\n", None, "a\nb\n"),
            ("", Some(3), ""),
        ] {
            assert_eq!(tail(text.as_bytes(), lines), expected.as_bytes());
        }
    }
}

//! Connections into a machine: its console, its display, its ports. The client speaks WebSocket to us, we speak raw bytes
//! to the agent of the machine's node.

use croft_meta::ApiError;
use http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::about::SUBRESOURCES;
use super::lifecycle::started_instance;
use super::live::{agent_path, has_display, node_of};
use super::machine::{has_condition, is_running, phase};
use super::{GROUP, Kind, VERSIONS, fetch};
use crate::answer::Answer;
use crate::call::Call;
use crate::request::RequestInfo;
use crate::websocket::{Framing, Handshake, bridge, upgraded};

const NOT_RUNNING: &str = "VMI is not running";

/// Whether a request is for a connection: it then lives as long as the connection, and is not read as others are.
pub(crate) fn is_stream(info: &RequestInfo) -> bool {
    info.group == GROUP
        && info.verb == "get"
        && VERSIONS.contains(&info.version.as_str())
        && !info.namespace.is_empty()
        && SUBRESOURCES.iter().any(|s| s.is_stream && s.kind.plural() == info.resource && s.name == info.subresource)
}

/// Connects, and answers 101; the copying goes on after the answer.
pub(crate) async fn open(call: &Call, parts: &mut Parts) -> Result<Answer, ApiError> {
    let (vmi, path, framing) = wanted(call).await?;
    let handshake = Handshake::parse(&parts.headers)?;
    let client = parts.extensions.remove::<OnUpgrade>();
    let client = client.ok_or_else(|| ApiError::bad_request("websocket: this connection cannot be upgraded"))?;
    let node = match call.server.open_stream(node_of(&vmi)?, &path).await? {
        Ok(stream) => TokioIo::new(stream),
        Err(refused) => return Ok(refused),
    };
    let (ended, session) = (call.ended(), call.session.clone());
    call.server.spawn(async move {
        match upgraded(client).await {
            Ok(client) => bridge(client, node, framing, ended).await,
            Err(error) => tracing::debug!(%error, "a client went away while its connection was opened"),
        }
        drop(session);
    });
    Ok(handshake.answer())
}

/// The machine, where its agent serves the stream, and how it is framed.
async fn wanted(call: &Call) -> Result<(Value, String, Framing), ApiError> {
    let what = call.info.subresource.as_str();
    if what == "portforward" {
        return port_forward(call).await;
    }
    let vmi = fetch(call, Kind::Vmi).await?;
    let path = agent_path(call, what);
    let path = match what {
        "console" => {
            has_console(&vmi, &call.info.name)?;
            path
        }
        "vnc" => {
            has_display(&vmi)?;
            if call.query.flag("preserveSession") { format!("{path}?preserveSession=true") } else { path }
        }
        "usbredir" => {
            let passthrough = vmi.pointer("/spec/domain/devices/clientPassthrough");
            if !passthrough.is_some_and(Value::is_object) {
                return Err(Kind::Vmi.conflict(&call.info.name, "Not configured with USB Redirection"));
            }
            must_run(&vmi)?;
            path
        }
        "vsock" => format!("{path}?port={}", vsock_port(call, &vmi)?),
        _ => return Err(ApiError::no_such_path()),
    };
    Ok((vmi, path, Framing::Bytes))
}

fn has_console(vmi: &Value, name: &str) -> Result<(), ApiError> {
    if vmi.pointer("/spec/domain/devices/autoattachSerialConsole") == Some(&Value::Bool(false)) {
        return Err(ApiError::bad_request("No serial consoles are present."));
    }
    if phase(vmi) == "Failed" {
        return Err(Kind::Vmi.conflict(name, "VMI is in failed status"));
    }
    must_run(vmi)
}

/// 400 is what makes `virtctl console` try again.
fn must_run(vmi: &Value) -> Result<(), ApiError> {
    if is_running(vmi) { Ok(()) } else { Err(ApiError::bad_request(NOT_RUNNING)) }
}

fn vsock_port(call: &Call, vmi: &Value) -> Result<u32, ApiError> {
    if vmi.pointer("/spec/domain/devices/autoattachVSOCK") != Some(&Value::Bool(true)) {
        return Err(ApiError::bad_request("VSOCK is not attached."));
    }
    must_run(vmi)?;
    if vmi.pointer("/status/VSOCKCID").and_then(Value::as_u64).is_none() {
        return Err(Kind::Vmi.conflict(&call.info.name, "VSOCK has no address yet"));
    }
    // KubeVirt's default is TLS with certificates of its own inside the guest, which Croft's guests do not have.
    if call.query.get("tls").unwrap_or("true") != "false" {
        return Err(ApiError::bad_request("TLS over VSOCK is not supported: ask with tls=false"));
    }
    let port = call.query.get("port").unwrap_or_default();
    port.parse().ok().filter(|port| *port > 0).ok_or_else(|| ApiError::bad_request(format!("{port:?} is not a port")))
}

/// `portforward/<port>[/<protocol>]`, of the machine or of its running instance.
async fn port_forward(call: &Call) -> Result<(Value, String, Framing), ApiError> {
    let (port, protocol) = call.info.rest.split_once('/').unwrap_or((&call.info.rest, "tcp"));
    let port: u16 = match port.parse() {
        Ok(port) if port > 0 => port,
        _ if port.is_empty() => return Err(ApiError::bad_request("port must not be empty")),
        _ => return Err(ApiError::bad_request(format!("{port:?} is not a port"))),
    };
    let framing = match protocol {
        "tcp" => Framing::Bytes,
        "udp" => Framing::Datagrams,
        other => return Err(ApiError::bad_request(format!("{other:?} is neither tcp nor udp"))),
    };
    let vmi = match call.info.resource.as_str() {
        "virtualmachines" => started_instance(call).await?,
        _ => fetch(call, Kind::Vmi).await?,
    };
    if has_condition(&vmi, "Paused") {
        return Err(Kind::Vmi.conflict(&call.info.name, "VMI is paused"));
    }
    let path = agent_path(call, &format!("portforward/{port}/{protocol}"));
    Ok((vmi, path, framing))
}

//! From a path to what is asked for.

use http::{Method, Request};

use super::Transport;
use super::answer::Failure;
use crate::metrics::Window;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    Health,
    Metrics,
    /// The newest figures of all.
    Usage,
    /// Of an instance, or of the node itself.
    UsageHistory(Option<Subject>, Window),
    /// One of the node's logs; all of their names if it is empty.
    Logs(String),
    Act(Subject, Action),
    View(Subject, View),
    Stream(Subject, StreamKind),
    Transfer(Subject, Transfer),
}

/// The instance, image or claim that it is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) namespace: String,
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Pause,
    Unpause,
    Freeze,
    Unfreeze,
    Reset,
    SoftReboot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    GuestOsInfo,
    UserList,
    FilesystemList,
    Screenshot,
    Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    Console,
    Vnc { keeps_session: bool },
    UsbRedir,
    Vsock { port: u32 },
    PortForward { port: u16, transport: Transport },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    IntoImage {
        size: Option<u64>,
    },
    FromImage,
    IntoClaim,
    /// A piece of an image, how much of it is here, and the end of that.
    Piece {
        offset: u64,
        length: u64,
    },
    Pieces,
    ForgetPieces,
}

impl Route {
    pub(super) fn of<B>(request: &Request<B>) -> Result<Self, Failure> {
        let path = request.uri().path();
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let query = request.uri().query().unwrap_or_default();
        let route = match (request.method(), segments.as_slice()) {
            (&Method::GET, ["healthz"]) => Some(Self::Health),
            (&Method::GET, ["metrics"]) => Some(Self::Metrics),
            (&Method::GET, ["logs", name @ ..]) => Some(Self::Logs(name.join("/"))),
            (&Method::GET, ["v1", "usage"]) => Some(Self::Usage),
            (&Method::GET, ["v1", "usage", "node"]) => Some(Self::UsageHistory(None, window(query)?)),
            (&Method::GET, ["v1", "usage", "vmis", namespace, name]) => {
                let subject = Subject { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
                Some(Self::UsageHistory(Some(subject), window(query)?))
            }
            (method, ["v1", "vmis", namespace, name, rest @ ..]) => {
                let subject = Subject { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
                of_instance(method, subject, rest, query)?
            }
            (method, ["v1", "images", namespace, name, "pieces"]) if is_name(namespace) && is_name(name) => {
                let subject = Subject { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
                of_pieces(method, query)?.map(|transfer| Self::Transfer(subject, transfer))
            }
            (method, ["v1", kind, namespace, name]) if is_name(namespace) && is_name(name) => {
                let subject = Subject { namespace: (*namespace).to_owned(), name: (*name).to_owned() };
                of_file(method, kind, query)?.map(|transfer| Self::Transfer(subject, transfer))
            }
            _ => None,
        };
        route.ok_or_else(|| Failure::not_found(format!("the agent has no {} {path}", request.method())))
    }
}

fn of_instance(method: &Method, subject: Subject, rest: &[&str], query: &str) -> Result<Option<Route>, Failure> {
    let route = match (method, rest) {
        (&Method::PUT, ["pause"]) => Route::Act(subject, Action::Pause),
        (&Method::PUT, ["unpause"]) => Route::Act(subject, Action::Unpause),
        (&Method::PUT, ["freeze"]) => Route::Act(subject, Action::Freeze),
        (&Method::PUT, ["unfreeze"]) => Route::Act(subject, Action::Unfreeze),
        (&Method::PUT, ["reset"]) => Route::Act(subject, Action::Reset),
        (&Method::PUT, ["softreboot"]) => Route::Act(subject, Action::SoftReboot),
        (&Method::GET, ["guestosinfo"]) => Route::View(subject, View::GuestOsInfo),
        (&Method::GET, ["userlist"]) => Route::View(subject, View::UserList),
        (&Method::GET, ["filesystemlist"]) => Route::View(subject, View::FilesystemList),
        (&Method::GET, ["vnc", "screenshot"]) => Route::View(subject, View::Screenshot),
        (&Method::GET, ["log"]) => Route::View(subject, View::Log),
        (&Method::GET, ["console"]) => Route::Stream(subject, StreamKind::Console),
        (&Method::GET, ["vnc"]) => {
            Route::Stream(subject, StreamKind::Vnc { keeps_session: is_true(query, "preserveSession") })
        }
        (&Method::GET, ["usbredir"]) => Route::Stream(subject, StreamKind::UsbRedir),
        (&Method::GET, ["vsock"]) => {
            let port = value(query, "port").and_then(|port| port.parse().ok());
            let port = port.ok_or_else(|| Failure::bad_request("port must be a number"))?;
            Route::Stream(subject, StreamKind::Vsock { port })
        }
        (&Method::GET, ["portforward", port]) => Route::Stream(subject, forward(port, "tcp")?),
        (&Method::GET, ["portforward", port, transport]) => Route::Stream(subject, forward(port, transport)?),
        _ => return Ok(None),
    };
    Ok(Some(route))
}

fn of_pieces(method: &Method, query: &str) -> Result<Option<Transfer>, Failure> {
    let number = |key: &str| {
        let number = value(query, key).and_then(|text| text.parse().ok());
        number.ok_or_else(|| Failure::bad_request(format!("{key}: it must be a number of bytes")))
    };
    Ok(match *method {
        Method::GET => Some(Transfer::Pieces),
        Method::PATCH => Some(Transfer::Piece { offset: number("offset")?, length: number("length")? }),
        Method::DELETE => Some(Transfer::ForgetPieces),
        _ => None,
    })
}

fn of_file(method: &Method, kind: &str, query: &str) -> Result<Option<Transfer>, Failure> {
    Ok(match (method, kind) {
        (&Method::POST, "images") => {
            let number = |text: &str| {
                text.parse().map_err(|_| Failure::bad_request(format!("size: {text:?} is not a number of bytes")))
            };
            Some(Transfer::IntoImage { size: value(query, "size").map(number).transpose()? })
        }
        (&Method::GET, "images") => Some(Transfer::FromImage),
        (&Method::POST, "claims") => Some(Transfer::IntoClaim),
        _ => None,
    })
}

fn window(query: &str) -> Result<Window, Failure> {
    let Some(text) = value(query, "window") else { return Ok(Window::TenMinutes) };
    Window::parse(text).ok_or_else(|| Failure::bad_request(format!("window: {text:?} is neither 10m nor 24h")))
}

/// A name as objects have them: it goes into paths of the API server.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
}

fn forward(port: &str, transport: &str) -> Result<StreamKind, Failure> {
    let number: Option<u16> = port.parse().ok().filter(|number| *number > 0);
    let port = number.ok_or_else(|| Failure::bad_request(format!("{port:?} is not a port")))?;
    let transport = match transport {
        "tcp" => Transport::Tcp,
        "udp" => Transport::Udp,
        other => return Err(Failure::bad_request(format!("{other:?} is not a protocol: tcp or udp"))),
    };
    Ok(StreamKind::PortForward { port, transport })
}

/// The value of a parameter. None of ours needs escapes.
pub(super) fn value<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(k, _)| *k == key).map(|(_, value)| value)
}

pub(super) fn is_true(query: &str, key: &str) -> bool {
    value(query, key).is_some_and(|value| matches!(value, "true" | "1" | "t" | "T" | "TRUE" | "True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, uri: &str) -> Result<Route, u16> {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        Route::of(&request).map_err(|failure| failure.code.as_u16())
    }

    fn subject() -> Subject {
        Subject { namespace: "ns".to_owned(), name: "vm".to_owned() }
    }

    #[test]
    fn paths_lead_to_what_is_asked_for() {
        let tcp = |port| StreamKind::PortForward { port, transport: Transport::Tcp };
        let udp = |port| StreamKind::PortForward { port, transport: Transport::Udp };
        for (method, uri, expected) in [
            ("PUT", "/v1/vmis/ns/vm/pause", Ok(Route::Act(subject(), Action::Pause))),
            ("GET", "/v1/vmis/ns/vm/pause", Err(404)),
            ("GET", "/v1/vmis/ns/vm/vnc", Ok(Route::Stream(subject(), StreamKind::Vnc { keeps_session: false }))),
            (
                "GET",
                "/v1/vmis/ns/vm/vnc?preserveSession=true",
                Ok(Route::Stream(subject(), StreamKind::Vnc { keeps_session: true })),
            ),
            ("GET", "/v1/vmis/ns/vm/vnc/screenshot", Ok(Route::View(subject(), View::Screenshot))),
            ("GET", "/v1/vmis/ns/vm/portforward/22/tcp", Ok(Route::Stream(subject(), tcp(22)))),
            ("GET", "/v1/vmis/ns/vm/portforward/53/udp", Ok(Route::Stream(subject(), udp(53)))),
            ("GET", "/v1/vmis/ns/vm/portforward/22", Ok(Route::Stream(subject(), tcp(22)))),
            ("GET", "/v1/vmis/ns/vm/portforward/0/tcp", Err(400)),
            ("GET", "/v1/vmis/ns/vm/portforward/70000/tcp", Err(400)),
            ("GET", "/v1/vmis/ns/vm/portforward/22/sctp", Err(400)),
            ("GET", "/v1/vmis/ns/vm/vsock?port=7", Ok(Route::Stream(subject(), StreamKind::Vsock { port: 7 }))),
            ("GET", "/v1/vmis/ns/vm/vsock", Err(400)),
            ("GET", "/v1/vmis/ns/vm", Err(404)),
            ("POST", "/v1/images/ns/vm", Ok(Route::Transfer(subject(), Transfer::IntoImage { size: None }))),
            ("POST", "/v1/images/ns/vm?size=7", Ok(Route::Transfer(subject(), Transfer::IntoImage { size: Some(7) }))),
            ("POST", "/v1/images/ns/vm?size=-7", Err(400)),
            ("GET", "/v1/images/ns/vm", Ok(Route::Transfer(subject(), Transfer::FromImage))),
            ("GET", "/v1/images/ns/vm/pieces", Ok(Route::Transfer(subject(), Transfer::Pieces))),
            (
                "PATCH",
                "/v1/images/ns/vm/pieces?offset=7&length=9",
                Ok(Route::Transfer(subject(), Transfer::Piece { offset: 7, length: 9 })),
            ),
            ("PATCH", "/v1/images/ns/vm/pieces?offset=7", Err(400)),
            ("DELETE", "/v1/images/ns/vm/pieces", Ok(Route::Transfer(subject(), Transfer::ForgetPieces))),
            ("POST", "/v1/claims/ns/vm", Ok(Route::Transfer(subject(), Transfer::IntoClaim))),
            ("GET", "/v1/claims/ns/vm", Err(404)),
            ("POST", "/v1/claims/ns/..", Err(404)),
            ("POST", "/v1/claims/ns/a%2fb", Err(404)),
            ("GET", "/logs", Ok(Route::Logs(String::new()))),
            ("GET", "/logs/a/b.log?tailBytes=1", Ok(Route::Logs("a/b.log".to_owned()))),
            ("PUT", "/logs", Err(404)),
            ("GET", "/v1/usage", Ok(Route::Usage)),
            ("GET", "/v1/usage/node?window=24h", Ok(Route::UsageHistory(None, Window::Day))),
            ("GET", "/v1/usage/vmis/ns/vm", Ok(Route::UsageHistory(Some(subject()), Window::TenMinutes))),
            ("GET", "/v1/usage/node?window=1h", Err(400)),
            ("GET", "/healthz", Ok(Route::Health)),
            ("GET", "/", Err(404)),
        ] {
            assert_eq!(route(method, uri), expected, "{method} {uri}");
        }
    }
}

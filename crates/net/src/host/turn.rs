//! One at a time on a host: whoever chooses a subnet must not be overtaken before it is in use.
//!
//! The turn is a name of the network namespace's own sockets, as routes are the namespace's own. It ends with the
//! process at the latest, and leaves no file.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use tokio::time::Instant;

const NAME: &str = "croft-subnet";
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Longer than a start takes. Whoever holds the name longer has no business with it, and is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn(#[expect(dead_code, reason = "held, not used")] UnixListener);

/// Nobody has to have it: without it there is only the chance that two choose alike.
pub(super) async fn take() -> Option<Turn> {
    let until = Instant::now() + PATIENCE;
    loop {
        match SocketAddr::from_abstract_name(NAME).and_then(|name| UnixListener::bind_addr(&name)) {
            Ok(listener) => return Some(Turn(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Err(error) => {
                tracing::warn!(%error, "another start on this host may choose the same subnet");
                return None;
            }
        }
    }
}

//! An NFS export as a target, spoken to from here: no mount of the kernel's that could hang the machine.
//!
//! The protocol is version 3, with the server's portmapper and mount service; files are the same in version 4. A few
//! connections are kept; one on which anything went wrong is thrown away.

mod files;
mod options;

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use nfs3_client::nfs3_types::mount::mountstat3;
use nfs3_client::nfs3_types::nfs3::{nfs_fh3, nfsstat3};
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{ConnectError, MountError, Nfs3Client, Nfs3ConnectionBuilder, PortmapError, RpcError};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::target::{Entry, Fault, Target, TargetError};
use options::Options;

const CONNECTIONS: usize = 8;
/// Directories whose handles are remembered; past it all are forgotten.
const HANDLES: usize = 4096;
/// How often an operation begins anew because a directory was replaced under it.
const TRIES: u32 = 4;

/// What is not of the target's own making: a status, or the transport.
#[derive(Debug, thiserror::Error)]
enum NfsError {
    #[error("the server answered {0}")]
    Status(nfsstat3),
    #[error("the call failed")]
    Call(#[source] RpcError),
    #[error("the server is not known by that name")]
    Resolve(#[source] std::io::Error),
    #[error("the export cannot be had")]
    Connect(#[source] ConnectError),
    #[error("no answer came in {0:?}")]
    Timeout(Duration),
    #[error("the file is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the server lost what was written, twice")]
    Lost,
    #[error("the server's answer lacks a file handle")]
    NoHandle,
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
}

impl From<RpcError> for NfsError {
    fn from(error: RpcError) -> Self {
        Self::Call(error)
    }
}

impl NfsError {
    fn is(&self, status: nfsstat3) -> bool {
        matches!(self, Self::Status(it) if *it == status)
    }

    /// A handle that is remembered leads nowhere any more.
    fn is_stale(&self) -> bool {
        [nfsstat3::NFS3ERR_STALE, nfsstat3::NFS3ERR_BADHANDLE].into_iter().any(|status| self.is(status))
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Status(nfsstat3::NFS3ERR_NOENT | nfsstat3::NFS3ERR_NOTDIR) => Fault::NotFound,
            Self::Status(nfsstat3::NFS3ERR_PERM | nfsstat3::NFS3ERR_ACCES | nfsstat3::NFS3ERR_ROFS)
            | Self::Call(RpcError::Auth(_)) => Fault::Forbidden,
            Self::Status(nfsstat3::NFS3ERR_NOSPC | nfsstat3::NFS3ERR_DQUOT) => Fault::Full,
            Self::TooLarge(_) => Fault::TooLarge,
            Self::Call(RpcError::Io(_)) | Self::Timeout(_) | Self::Resolve(_) => Fault::Unreachable,
            Self::Connect(error) => connect_fault(error),
            _ => Fault::Server,
        }
    }
}

fn connect_fault(error: &ConnectError) -> Fault {
    match error {
        ConnectError::Io(_)
        | ConnectError::Portmap(PortmapError::Rpc(RpcError::Io(_)))
        | ConnectError::Mount(MountError::Rpc(RpcError::Io(_))) => Fault::Unreachable,
        ConnectError::Mount(MountError::Denied(status)) => match status {
            mountstat3::MNT3ERR_NOENT | mountstat3::MNT3ERR_NOTDIR => Fault::NoTarget,
            mountstat3::MNT3ERR_PERM | mountstat3::MNT3ERR_ACCES => Fault::Forbidden,
            _ => Fault::Server,
        },
        ConnectError::Mount(MountError::Rpc(RpcError::Auth(_))) => Fault::Forbidden,
        _ => Fault::Server,
    }
}

/// One connection, with the handle of the export's root.
struct Connection {
    client: Nfs3Client<TokioIo<TcpStream>>,
    root: nfs_fh3,
}

pub struct Nfs {
    host: String,
    path: String,
    options: Options,
    slots: Semaphore,
    idle: Mutex<Vec<Connection>>,
    /// Directories by their path.
    handles: Mutex<HashMap<String, nfs_fh3>>,
}

impl std::fmt::Debug for Nfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nfs").field("host", &self.host).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Nfs {
    pub fn new(host: &str, path: &str, options: &[String]) -> Result<Self, TargetError> {
        let options = Options::parse(options)
            .map_err(|error| TargetError::new(Fault::Configuration, "use", path).because(error))?;
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').into(),
            path: path.into(),
            options,
            slots: Semaphore::new(CONNECTIONS),
            idle: Mutex::default(),
            handles: Mutex::default(),
        })
    }

    /// Runs one operation on a connection, anew if a remembered directory turns out to be gone.
    async fn with<T, F>(&self, doing: &'static str, path: &str, operation: F) -> Result<T, TargetError>
    where
        F: for<'c> Fn(&'c Self, &'c mut Connection, &'c str) -> BoxFuture<'c, Result<T, NfsError>>,
    {
        let failed = |error: NfsError| TargetError::new(error.fault(), doing, path).because(error);
        // The semaphore lives as long as we do and is never closed.
        let _slot =
            self.slots.acquire().await.map_err(|error| TargetError::new(Fault::Server, doing, path).because(error))?;
        let mut tries = 1;
        loop {
            let idle = self.idle.lock().pop();
            let was_idle = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await.map_err(failed)?,
            };
            let error = match self.in_time(operation(self, &mut connection, path)).await {
                Ok(done) => {
                    self.idle.lock().push(connection);
                    return Ok(done);
                }
                Err(error) => error,
            };
            if matches!(error, NfsError::Status(_) | NfsError::TooLarge(_)) {
                self.idle.lock().push(connection);
            }
            // A server that was restarted has closed what we kept; a new connection tells whether it is back.
            let is_old = was_idle && error.fault() == Fault::Unreachable;
            if is_old {
                self.idle.lock().clear();
            }
            if !(error.is_stale() || is_old) || tries >= TRIES {
                return Err(failed(error));
            }
            self.handles.lock().clear();
            tries += 1;
        }
    }

    async fn in_time<T>(&self, operation: impl Future<Output = Result<T, NfsError>>) -> Result<T, NfsError> {
        let timeout = self.options.timeout;
        tokio::time::timeout(timeout, operation).await.unwrap_or(Err(NfsError::Timeout(timeout)))
    }

    async fn connect(&self) -> Result<Connection, NfsError> {
        self.in_time(async {
            let address = self.resolve().await?;
            match self.mount(address, self.options.is_reserved_port && address.is_ipv4()).await {
                // Only root may use such ports, and not every server asks for them.
                Err(ConnectError::Io(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    self.mount(address, false).await
                }
                other => other,
            }
            .map_err(NfsError::Connect)
        })
        .await
    }

    async fn resolve(&self) -> Result<IpAddr, NfsError> {
        if let Ok(address) = self.host.parse() {
            return Ok(address);
        }
        let found = tokio::net::lookup_host((self.host.as_str(), 0)).await.map_err(NfsError::Resolve)?;
        let mut addresses: Vec<_> = found.map(|address: SocketAddr| address.ip()).collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        let none = || NfsError::Resolve(std::io::Error::from(std::io::ErrorKind::NotFound));
        addresses.into_iter().next().ok_or_else(none)
    }

    async fn mount(&self, address: IpAddr, is_reserved_port: bool) -> Result<Connection, ConnectError> {
        let credential = auth_unix { machinename: Opaque::borrowed(b"croft"), ..auth_unix::default() };
        let mut builder = Nfs3ConnectionBuilder::new(TokioConnector, address.to_string(), &self.path)
            .connect_from_privileged_port(is_reserved_port)
            .credential(opaque_auth::auth_unix(&credential));
        if let Some(port) = self.options.port {
            builder = builder.nfs3_port(port);
        }
        if let Some(port) = self.options.mount_port {
            builder = builder.mount_port(port);
        }
        let mounted = builder.mount().await?;
        let root = mounted.root_nfs_fh3();
        Ok(Connection { client: mounted.into_nfs3_client(), root })
    }

    fn remember(&self, dir: &str, handle: &nfs_fh3) {
        let mut handles = self.handles.lock();
        if handles.len() >= HANDLES {
            handles.clear();
        }
        handles.insert(dir.to_owned(), handle.clone());
    }

    fn forget(&self, dir: &str) {
        self.handles.lock().retain(|it, _| it != dir && !it.starts_with(&format!("{dir}/")));
    }
}

impl Target for Nfs {
    fn list<'a>(&'a self, dir: &'a str) -> BoxFuture<'a, Result<Vec<String>, TargetError>> {
        async move {
            let found = self.with("list", dir, |nfs, connection, dir| nfs.look_into(connection, dir).boxed()).await?;
            Ok(found.into_iter().map(|found| found.name).collect())
        }
        .boxed()
    }

    fn walk<'a>(&'a self, dir: &'a str) -> BoxStream<'a, Result<Entry, TargetError>> {
        // A few directories at a time; what waits to be looked into are only names of directories.
        let start = (vec![dir.to_owned()], Vec::new());
        stream::try_unfold(start, move |(mut dirs, mut files): (Vec<String>, Vec<Entry>)| async move {
            loop {
                if let Some(entry) = files.pop() {
                    return Ok(Some((entry, (dirs, files))));
                }
                if dirs.is_empty() {
                    return Ok(None);
                }
                let now = dirs.split_off(dirs.len().saturating_sub(CONNECTIONS));
                let looks = now
                    .iter()
                    .map(|dir| self.with("list", dir, |nfs, connection, dir| nfs.look_into(connection, dir).boxed()));
                let below = futures::future::try_join_all(looks).await?;
                for (dir, found) in
                    now.iter().zip(below).flat_map(|(dir, found)| found.into_iter().map(move |it| (dir, it)))
                {
                    let path = if dir.is_empty() { found.name } else { format!("{dir}/{}", found.name) };
                    match found.file {
                        None => dirs.push(path),
                        Some((size, modified)) => files.push(Entry { path, size, modified }),
                    }
                }
            }
        })
        .boxed()
    }

    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Entry>, TargetError>> {
        self.with("look at", path, |nfs, connection, path| nfs.look_at(connection, path).boxed()).boxed()
    }

    fn get<'a>(&'a self, path: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, TargetError>> {
        self.with("read", path, move |nfs, connection, path| nfs.read(connection, path, limit).boxed()).boxed()
    }

    fn put<'a>(&'a self, path: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), TargetError>> {
        async move {
            self.with("write", path, |nfs, connection, path| nfs.write(connection, path, data.clone()).boxed()).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.with("delete", path, |nfs, connection, path| nfs.remove(connection, path).boxed()).boxed()
    }
}

//! One name for the servers that a test may run against.

use std::ops::Deref;

use anyhow::Result;

use crate::{Croft, Endpoint, KubeApiserver, StoreKind};

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    Embedded,
    Etcd,
    Reference,
}

impl ServerKind {
    /// Whether this run wants it: the reference only when `KUBE_APISERVER` names one, the others unless
    /// `CROFT_TEST_SERVERS` lists only some (`embedded,etcd,reference`).
    pub fn wanted(self) -> bool {
        let name = match self {
            Self::Embedded => "embedded",
            Self::Etcd => "etcd",
            Self::Reference => "reference",
        };
        let listed = std::env::var("CROFT_TEST_SERVERS").is_ok_and(|list| !list.split(',').any(|one| one == name));
        !listed && (self != Self::Reference || KubeApiserver::program().is_some())
    }
}

/// A running server of either make.
#[derive(Debug)]
pub enum Server {
    Croft(Box<Croft>),
    Reference(Box<KubeApiserver>),
}

impl Server {
    pub async fn start(kind: ServerKind) -> Result<Self> {
        Ok(match kind {
            ServerKind::Embedded => Self::Croft(Box::new(Croft::start(StoreKind::Embedded).await?)),
            ServerKind::Etcd => Self::Croft(Box::new(Croft::start(StoreKind::Etcd).await?)),
            ServerKind::Reference => Self::Reference(Box::new(KubeApiserver::start().await?)),
        })
    }

    pub fn is_croft(&self) -> bool {
        matches!(self, Self::Croft(_))
    }

    /// Whether garbage collection, the life of namespaces and the like work here.
    pub fn has_controllers(&self) -> bool {
        match self {
            Self::Croft(_) => true,
            Self::Reference(server) => server.has_controllers(),
        }
    }
}

impl Deref for Server {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        match self {
            Self::Croft(server) => server,
            Self::Reference(server) => server,
        }
    }
}

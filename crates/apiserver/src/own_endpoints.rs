//! Where the servers of a cluster are reached: the Endpoints and EndpointSlices of the Service `kubernetes`.
//!
//! Each server has a key in the store that says its address and goes with its lease, which it renews as long as it runs. All of
//! them write what the keys say, and come to the same. Upstream's lease reconciler does it so (`pkg/controlplane/reconcilers`).
//! A renewal writes nothing, so that an idle server stays idle.
//!
//! An address that only this machine can use is no endpoint, and Kubernetes refuses it as one: a server that listens on
//! loopback alone has none.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::{ApiError, object};
use croft_store::{LeaseId, Op, Range, Store, Txn};
use serde_json::{Value, json};

use crate::cache::store_error;
use crate::call::{Call, Target};
use crate::options::DeleteOptions;
use crate::server::ApiServer;
use crate::{bootstrap, verbs};

/// Beside the objects: what is here is not saved with them.
const PREFIX: &str = "apiservers/";
/// As upstream: a server that is gone is forgotten after this, and one that is there says so more often.
const TTL: Duration = Duration::from_secs(15);
const PERIOD: Duration = Duration::from_secs(10);
const LAST_WORDS: Duration = Duration::from_secs(2);

const SERVICE: &str = "kubernetes";
const NAMESPACE: &str = "default";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "apiserver.croft.io";

/// What a server has said about itself.
#[derive(Debug)]
struct Said {
    address: SocketAddr,
    lease: LeaseId,
}

/// Runs until the server stops. `listeners` are those that it has, the first asked for first.
pub(crate) async fn keep(server: Arc<ApiServer>, listeners: Vec<SocketAddr>) {
    let stop = server.stopping();
    let mut said = None;
    loop {
        if let Err(error) = turn(&server, &listeners, &mut said).await {
            tracing::warn!(%error, "where this server is reached could not be told; trying again");
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = stop.cancelled() => break,
        }
    }
    let Some(Said { lease, .. }) = said else { return };
    // The others need not wait for it to run out. If this fails, they do.
    let _ = tokio::time::timeout(LAST_WORDS, server.store.lease_revoke(lease)).await;
}

async fn turn(server: &Arc<ApiServer>, listeners: &[SocketAddr], said: &mut Option<Said>) -> Result<(), ApiError> {
    // It may change while we run.
    let address = advertised(listeners, own_address());
    say(&*server.store, address, said).await.map_err(store_error)?;
    let range = Range { prefix: PREFIX.to_owned(), ..Range::default() };
    let found = server.store.range(range).await.map_err(store_error)?;
    let addresses = found.records.iter().filter_map(|record| record.key.strip_prefix(PREFIX)?.parse().ok()).collect();
    write(server, addresses).await
}

/// The first listener that others can reach, as far as this machine can tell.
fn advertised(listeners: &[SocketAddr], own: Option<IpAddr>) -> Option<SocketAddr> {
    let reached = |listener: &SocketAddr| {
        let ip = if listener.ip().is_unspecified() { own? } else { listener.ip() };
        let is_link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        (!ip.is_loopback() && !ip.is_multicast() && !is_link_local).then(|| SocketAddr::new(ip, listener.port()))
    };
    listeners.iter().find_map(reached)
}

/// The address this machine would use to reach others. No packet is sent: connecting a datagram socket only picks a route.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|addr| addr.ip())
}

/// Says the address, or renews what was said; takes back what holds no longer.
async fn say(store: &dyn Store, address: Option<SocketAddr>, said: &mut Option<Said>) -> croft_store::Result<()> {
    if let Some(known) = said.take() {
        let is_kept = Some(known.address) == address;
        let done = if is_kept {
            store.lease_keep_alive(known.lease).await.map(drop)
        } else {
            store.lease_revoke(known.lease).await
        };
        match done {
            Ok(()) if is_kept => {
                *said = Some(known);
                return Ok(());
            }
            // It ran out while we could not reach the store.
            Ok(()) | Err(croft_store::Error::NoSuchLease(_)) => {}
            Err(error) => {
                *said = Some(known);
                return Err(error);
            }
        }
    }
    let Some(address) = address else { return Ok(()) };
    let lease = store.lease_grant(TTL).await?;
    let op = Op::Put { key: format!("{PREFIX}{address}"), value: Bytes::from_static(b"{}"), lease: Some(lease) };
    store.txn(Txn { compare: Vec::new(), ops: vec![op] }).await?;
    *said = Some(Said { address, lease });
    Ok(())
}

async fn write(server: &Arc<ApiServer>, mut addresses: Vec<SocketAddr>) -> Result<(), ApiError> {
    addresses.sort();
    let is_known = server.cache.collection("core/endpoints").get(&format!("{NAMESPACE}/{SERVICE}")).is_some();
    if addresses.is_empty() && !is_known {
        return Ok(());
    }
    bootstrap::refresh(server, endpoints(&addresses)).await?;
    let slices = slices(&addresses);
    let wanted: Vec<String> = slices.iter().map(|slice| object::name(slice).to_owned()).collect();
    for slice in slices {
        bootstrap::refresh(server, slice).await?;
    }
    for slice in server.cache.collection("discovery.k8s.io/endpointslices").list(NAMESPACE) {
        let is_ours = slice.json().pointer("/metadata/labels").is_some_and(|labels| labels[MANAGER_LABEL] == MANAGER);
        if is_ours && !wanted.iter().any(|name| name == slice.name()) {
            remove_slice(server, slice.name()).await?;
        }
    }
    Ok(())
}

async fn remove_slice(server: &Arc<ApiServer>, name: &str) -> Result<(), ApiError> {
    let gvk = croft_meta::Gvk::new("discovery.k8s.io", "v1", "EndpointSlice");
    let kind = server.catalog().find_kind(&gvk).cloned().ok_or_else(ApiError::no_such_path)?;
    let target = Target::new(kind, NAMESPACE, name);
    let call = Call::internal(server, &target);
    match verbs::delete::delete_one(&call, &target, &DeleteOptions::default()).await {
        Err(error) if error.code() != 404 => Err(error),
        _ => Ok(()),
    }
}

fn by_port(addresses: &[SocketAddr]) -> BTreeMap<u16, Vec<IpAddr>> {
    let mut ports: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
    for address in addresses {
        ports.entry(address.port()).or_default().push(address.ip());
    }
    ports
}

fn port(port: u16) -> Value {
    json!({"name": "https", "port": port, "protocol": "TCP"})
}

fn endpoints(addresses: &[SocketAddr]) -> Value {
    let subsets = by_port(addresses).into_iter().map(|(number, ips)| {
        let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip.to_string()})).collect();
        json!({"addresses": addresses, "ports": [port(number)]})
    });
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {
            "name": SERVICE, "namespace": NAMESPACE,
            // The slices are ours too.
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": subsets.collect::<Vec<_>>(),
    })
}

/// One for each family and port. The first of IPv4 has the Service's name, as upstream's only one.
fn slices(addresses: &[SocketAddr]) -> Vec<Value> {
    let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) = addresses.iter().partition(|address| address.is_ipv4());
    let mut slices = Vec::new();
    for (family, addresses) in [("IPv4", v4), ("IPv6", v6)] {
        let mut groups = by_port(&addresses);
        if groups.is_empty() && family == "IPv4" {
            slices.push(slice(SERVICE, family, &[], None));
        }
        if family == "IPv4"
            && let Some((number, ips)) = groups.pop_first()
        {
            slices.push(slice(SERVICE, family, &ips, Some(number)));
        }
        for (number, ips) in groups {
            let name = format!("{SERVICE}-{}-{number}", family.to_lowercase());
            slices.push(slice(&name, family, &ips, Some(number)));
        }
    }
    slices
}

fn slice(name: &str, family: &str, ips: &[IpAddr], number: Option<u16>) -> Value {
    let endpoint = |ip: &IpAddr| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}});
    let mut labels = json!({SERVICE_LABEL: SERVICE});
    if name != SERVICE {
        labels[MANAGER_LABEL] = json!(MANAGER);
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "endpoints": ips.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": number.map(port).into_iter().collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn the_first_listener_that_others_reach_is_told() {
        let own = Some("192.0.2.7".parse().unwrap());
        let table = [
            (vec!["127.0.0.1:6443"], own, None),
            (vec!["127.0.0.1:6443", "192.0.2.1:443"], own, Some("192.0.2.1:443")),
            (vec!["0.0.0.0:6443", "0.0.0.0:443"], own, Some("192.0.2.7:6443")),
            (vec!["[::]:6443"], own, Some("192.0.2.7:6443")),
            (vec!["0.0.0.0:6443"], None, None),
            (vec!["169.254.1.1:6443", "[fe80::1]:6443", "[2001:db8::1]:6443"], None, Some("[2001:db8::1]:6443")),
        ];
        for (listeners, own, wanted) in table {
            let told = advertised(&parsed(&listeners), own).map(|address| address.to_string());
            assert_eq!(told.as_deref(), wanted, "{listeners:?}");
        }
    }

    #[test]
    fn servers_are_put_together_by_their_ports() {
        let all = parsed(&["192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.3:443", "[2001:db8::1]:6443"]);
        let told = endpoints(&all);
        assert_eq!(told["subsets"][0]["addresses"], json!([{"ip": "192.0.2.3"}]));
        assert_eq!(told["subsets"][1]["ports"][0]["port"], 6443);
        assert_eq!(told["subsets"][1]["addresses"].as_array().map(Vec::len), Some(3));
        let slices = slices(&all);
        let names: Vec<&str> = slices.iter().map(object::name).collect();
        assert_eq!(names, ["kubernetes", "kubernetes-ipv4-6443", "kubernetes-ipv6-6443"]);
        assert_eq!(slices[2]["addressType"], "IPv6");
    }

    #[test]
    fn nobody_there_is_said_as_well() {
        assert_eq!(endpoints(&[])["subsets"], json!([]));
        assert_eq!(slices(&[])[0]["endpoints"], json!([]));
    }
}

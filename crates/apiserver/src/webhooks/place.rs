//! Where a webhook is: a URL, or a Service of the cluster.
//!
//! Croft forwards nothing to the addresses of Services. A webhook behind one is reached at an address that somebody has
//! written down for it: in its EndpointSlices or Endpoints, or as the name of an ExternalName.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use croft_meta::field::go_quote;
use http::Uri;
use serde_json::Value;

use crate::cache::Cache;

const HTTPS: u16 = 443;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Url {
        host: String,
        port: u16,
        authority: String,
        path: String,
    },
    Service {
        namespace: String,
        name: String,
        port: u16,
        path: String,
    },
    /// It was refused when it was written; and if it was stored by others, it is refused now.
    Unusable(String),
}

/// Where a connection is to lead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Known(Vec<SocketAddr>),
    Named(String, u16),
}

impl Place {
    pub(crate) fn parse(client_config: &Value) -> Self {
        match (client_config["url"].as_str(), &client_config["service"]) {
            (Some(url), Value::Null) => Self::url(url),
            (None, service) if service.is_object() => {
                let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
                let port = service["port"].as_u64().map_or(Some(HTTPS), |port| u16::try_from(port).ok());
                let path = rooted(&text("path"));
                Self::Service { namespace: text("namespace"), name: text("name"), port: port.unwrap_or(HTTPS), path }
            }
            _ => Self::Unusable("webhook configuration must have either service or URL".to_owned()),
        }
    }

    fn url(url: &str) -> Self {
        let unusable = |why: &str| Self::Unusable(format!("Unparsable URL: {url}: {why}"));
        let uri: Uri = match url.parse() {
            Ok(uri) => uri,
            Err(error) => return unusable(&format!("{error}")),
        };
        let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else { return unusable("no host") };
        if uri.scheme_str() != Some("https") {
            return unusable("only https is spoken");
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(HTTPS);
        Self::Url { host, port, authority: authority.as_str().to_owned(), path: rooted(uri.path()) }
    }

    /// What `Host` says, and errors.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Url { authority, .. } => authority.clone(),
            Self::Service { port, .. } => format!("{}:{port}", self.server_name()),
            Self::Unusable(_) => String::new(),
        }
    }

    /// The name that the server's certificate must have.
    pub(crate) fn server_name(&self) -> String {
        match self {
            Self::Url { host, .. } => host.clone(),
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Self::Unusable(_) => String::new(),
        }
    }

    /// The path, with how long the answer may take.
    pub(crate) fn path(&self, timeout: Duration) -> String {
        let path = match self {
            Self::Url { path, .. } | Self::Service { path, .. } => path,
            Self::Unusable(_) => "/",
        };
        format!("{path}?timeout={}s", timeout.as_secs().max(1))
    }

    pub(crate) fn address(&self, cache: &Cache) -> Result<Address, String> {
        match self {
            Self::Unusable(why) => Err(why.clone()),
            Self::Url { host, port, .. } => Ok(match host.parse::<IpAddr>() {
                Ok(ip) => Address::Known(vec![SocketAddr::new(ip, *port)]),
                Err(_) => Address::Named(host.clone(), *port),
            }),
            Self::Service { namespace, name, port, .. } => service_address(cache, namespace, name, *port),
        }
    }
}

fn rooted(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn service_address(cache: &Cache, namespace: &str, name: &str, port: u16) -> Result<Address, String> {
    let id = format!("{namespace}/{name}");
    let found = cache.collection("core/services").get(&id);
    let service = found.ok_or_else(|| format!("service {} not found", go_quote(name)))?.json();
    if service.pointer("/spec/type").and_then(Value::as_str) == Some("ExternalName") {
        let host = service.pointer("/spec/externalName").and_then(Value::as_str).unwrap_or_default();
        return Ok(Address::Named(host.to_owned(), port));
    }
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let listed = ports.into_iter().flatten().find(|listed| listed["port"].as_u64() == Some(u64::from(port)));
    let listed = listed.ok_or_else(|| format!("no service port {port} found for service {}", go_quote(name)))?;
    let port_name = listed["name"].as_str().unwrap_or_default();
    let slices = cache.collection("discovery.k8s.io/endpointslices").list(namespace);
    let mine = slices.iter().filter(|slice| slice.label("kubernetes.io/service-name") == Some(name));
    let mut addresses: Vec<SocketAddr> = mine.flat_map(|slice| of_slice(&slice.json(), port_name)).collect();
    if addresses.is_empty()
        && let Some(endpoints) = cache.collection("core/endpoints").get(&id)
    {
        addresses = of_endpoints(&endpoints.json(), port_name);
    }
    if addresses.is_empty() {
        return Err(format!("no endpoints available for service {}", go_quote(name)));
    }
    Ok(Address::Known(addresses))
}

fn of_slice(slice: &Value, port_name: &str) -> Vec<SocketAddr> {
    let list = |field: &str| slice[field].as_array().into_iter().flatten();
    let Some(port) = port_of(list("ports"), port_name) else { return Vec::new() };
    // Endpoints that do not say whether they are ready are.
    let ready = list("endpoints").filter(|endpoint| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false)));
    let addresses = ready.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|ip| Some(SocketAddr::new(ip.as_str()?.parse().ok()?, port))).collect()
}

fn of_endpoints(endpoints: &Value, port_name: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let list = |field: &str| subset[field].as_array().into_iter().flatten();
        let Some(port) = port_of(list("ports"), port_name) else { continue };
        let addresses = list("addresses").filter_map(|address| address["ip"].as_str()?.parse().ok());
        found.extend(addresses.map(|ip: IpAddr| SocketAddr::new(ip, port)));
    }
    found
}

fn port_of<'a>(mut ports: impl Iterator<Item = &'a Value>, name: &str) -> Option<u16> {
    let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::testing::TestCache;

    #[test]
    fn urls_lead_where_they_say() {
        let of = |url: &str| Place::parse(&json!({ "url": url }));
        let place = of("https://hooks.example.com/a/b");
        assert_eq!(place.authority(), "hooks.example.com");
        assert_eq!(place.server_name(), "hooks.example.com");
        assert_eq!(place.path(Duration::from_secs(5)), "/a/b?timeout=5s");
        let place = of("https://[::1]:8443");
        assert_eq!((place.authority().as_str(), place.server_name().as_str()), ("[::1]:8443", "::1"));
        assert_eq!(place.path(Duration::from_secs(10)), "/?timeout=10s");
        assert!(matches!(of("http://a/b"), Place::Unusable(_)));
        assert!(matches!(of("https://"), Place::Unusable(_)));
        assert!(matches!(Place::parse(&json!({})), Place::Unusable(_)));
    }

    #[test]
    fn services_have_a_name_of_their_own() {
        let place = Place::parse(&json!({"service": {"namespace": "ns", "name": "hook", "path": "/x"}}));
        assert_eq!((place.authority().as_str(), place.server_name().as_str()), ("hook.ns.svc:443", "hook.ns.svc"));
        assert_eq!(place.path(Duration::from_secs(1)), "/x?timeout=1s");
    }

    #[test]
    fn addresses_are_those_that_are_ready_under_the_ports_name() {
        let slice = json!({
            "ports": [{"name": "web", "port": 80}, {"name": "hook", "port": 9443}],
            "endpoints": [
                {"addresses": ["192.0.2.1"], "conditions": {"ready": false}},
                {"addresses": ["192.0.2.2"]},
                {"addresses": ["2001:db8::3"], "conditions": {"ready": true}},
            ],
        });
        let found: Vec<String> = of_slice(&slice, "hook").iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.2:9443", "[2001:db8::3]:9443"]);
        assert!(of_slice(&slice, "other").is_empty());
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"port": 443}]}]});
        assert_eq!(of_endpoints(&endpoints, "")[0].to_string(), "192.0.2.9:443");
    }

    #[tokio::test]
    async fn services_lead_to_their_endpoints() {
        let about =
            |name: &str| json!({"name": name, "namespace": "ns", "labels": {"kubernetes.io/service-name": "hook"}});
        let ports = |port: u16| json!([{"name": "https", "port": port}]);
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": about("hook"), "spec": {"ports": ports(443)}});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": about("hook-1"),
            "ports": ports(9443), "endpoints": [{"addresses": ["192.0.2.2"]}]});
        let external = json!({"apiVersion": "v1", "kind": "Service", "metadata": about("far"),
            "spec": {"type": "ExternalName", "externalName": "hooks.example.com"}});
        let cache = TestCache::new([service, slice, external]).await;
        let address = |name: &str, port: u16| {
            Place::parse(&json!({"service": {"namespace": "ns", "name": name, "port": port}})).address(&cache)
        };
        assert_eq!(address("hook", 443), Ok(Address::Known(vec!["192.0.2.2:9443".parse().unwrap()])));
        assert_eq!(address("far", 8443), Ok(Address::Named("hooks.example.com".to_owned(), 8443)));
        assert_eq!(address("hook", 80), Err("no service port 80 found for service \"hook\"".to_owned()));
        assert_eq!(address("none", 443), Err("service \"none\" not found".to_owned()));
    }
}

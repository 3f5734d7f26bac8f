//! What running machines use, from the nodes' own figures.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use http::Method;

use crate::client::Client;
use crate::{Failure, node, output, print};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Those of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Over how many seconds rates are measured
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
}

/// A machine, by namespace and name.
type Machine = (String, String);

/// What the figures say of one machine, summed over its disks and interfaces.
#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    cpu_seconds: f64,
    memory: f64,
    read: f64,
    written: f64,
    received: f64,
    sent: f64,
}

pub(crate) async fn run(client: &Client, args: &TopArgs) -> Result<(), Failure> {
    let nodes = node::names(client).await?;
    let before = usage(client, &nodes).await?;
    tokio::time::sleep(Duration::from_secs(args.interval)).await;
    let after = usage(client, &nodes).await?;
    let mut rows = Vec::new();
    for ((namespace, name), now) in &after {
        if !args.all_namespaces && *namespace != client.namespace {
            continue;
        }
        // One that was not there before has no rate yet.
        let then = before.get(&(namespace.clone(), name.clone())).unwrap_or(now);
        rows.push(row(namespace, name, then, now, args.interval, args.all_namespaces));
    }
    if rows.is_empty() {
        eprintln!("nothing is running");
        return Ok(());
    }
    let mut header = vec!["name", "cpu", "memory", "disk read/s", "disk write/s", "net in/s", "net out/s"];
    if args.all_namespaces {
        header.insert(0, "namespace");
    }
    print(&output::rows(&header, rows))
}

fn row(namespace: &str, name: &str, then: &Usage, now: &Usage, seconds: u64, with_namespace: bool) -> Vec<String> {
    let millicores =
        (now.cpu_seconds - then.cpu_seconds).max(0.0) * 1000.0 / f64::from(u32::try_from(seconds).unwrap_or(1));
    let rate = |now: f64, then: f64| output::bytes(whole((now - then).max(0.0)) / seconds);
    let mut cells = vec![
        name.to_owned(),
        format!("{millicores:.0}m"),
        output::bytes(whole(now.memory)),
        rate(now.read, then.read),
        rate(now.written, then.written),
        rate(now.received, then.received),
        rate(now.sent, then.sent),
    ];
    if with_namespace {
        cells.insert(0, namespace.to_owned());
    }
    cells
}

/// A figure that counts bytes; those that make no sense count as none.
fn whole(figure: f64) -> u64 {
    if figure.is_finite() && figure > 0.0 { format!("{figure:.0}").parse().unwrap_or_default() } else { 0 }
}

async fn usage(client: &Client, nodes: &[String]) -> anyhow::Result<BTreeMap<Machine, Usage>> {
    let mut all = BTreeMap::new();
    for node in nodes {
        let text = client.text(Method::GET, &format!("/api/v1/nodes/{node}/proxy/metrics"), None).await?;
        read(&text, &mut all);
    }
    Ok(all)
}

/// Reads the lines of the Prometheus format that matter here.
fn read(text: &str, all: &mut BTreeMap<Machine, Usage>) {
    for line in text.lines().filter(|line| line.starts_with("kubevirt_vmi_")) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
        let Some(value) = value.split(' ').next().and_then(|value| value.parse::<f64>().ok()) else { continue };
        let (Some(namespace), Some(machine)) = (label(labels, "namespace"), label(labels, "name")) else { continue };
        let usage = all.entry((namespace, machine)).or_default();
        match name {
            "kubevirt_vmi_cpu_usage_seconds_total" => usage.cpu_seconds += value,
            "kubevirt_vmi_memory_resident_bytes" => usage.memory += value,
            "kubevirt_vmi_storage_read_traffic_bytes_total" => usage.read += value,
            "kubevirt_vmi_storage_write_traffic_bytes_total" => usage.written += value,
            "kubevirt_vmi_network_receive_bytes_total" => usage.received += value,
            "kubevirt_vmi_network_transmit_bytes_total" => usage.sent += value,
            _ => {}
        }
    }
}

/// Names of machines and namespaces have no characters that are escaped.
fn label(labels: &str, wanted: &str) -> Option<String> {
    labels.split(',').find_map(|label| {
        let (name, value) = label.split_once('=')?;
        (name == wanted).then(|| value.trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_summed_per_machine() {
        let text = "# TYPE kubevirt_vmi_storage_read_traffic_bytes_total counter\n\
            kubevirt_vmi_storage_read_traffic_bytes_total{node=\"n\",namespace=\"a\",name=\"vm\",drive=\"d0\"} 100\n\
            kubevirt_vmi_storage_read_traffic_bytes_total{node=\"n\",namespace=\"a\",name=\"vm\",drive=\"d1\"} 28\n\
            kubevirt_vmi_cpu_usage_seconds_total{node=\"n\",namespace=\"a\",name=\"vm\"} 1.5\n\
            other{namespace=\"a\",name=\"vm\"} 7\n";
        let mut all = BTreeMap::new();
        read(text, &mut all);
        let usage = all[&("a".to_owned(), "vm".to_owned())];
        assert_eq!(whole(usage.read), 128);
        let cells = row("a", "vm", &Usage::default(), &usage, 1, false);
        assert_eq!(cells[..4], ["vm", "1500m", "0 B", "128 B"]);
    }
}

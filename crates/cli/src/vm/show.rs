//! All that is worth knowing about one machine.

use std::fmt::Write;

use clap::Args;
use serde_json::Value;

use crate::client::{Client, INSTANCES, MACHINES};
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, print};

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The virtual machine
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(client: &Client, args: &ShowArgs) -> Result<(), Failure> {
    let machine = client.get(&MACHINES.one(&client.namespace, &args.name)?).await?;
    if !matches!(args.output.output, Format::Table | Format::Wide) {
        return super::print_object(args.output.output, &machine);
    }
    let instance = client.find(&INSTANCES.one(&client.namespace, &args.name)?).await?;
    let selector = format!("involvedObject.name%3D{}", args.name);
    let events =
        client.get(&format!("/api/v1/namespaces/{}/events?fieldSelector={selector}", client.namespace)).await?;
    print(&described(&machine, instance.as_ref(), &events))
}

fn described(machine: &Value, instance: Option<&Value>, events: &Value) -> String {
    let nothing = Value::Null;
    let run = instance.unwrap_or(&nothing);
    let template = &machine["spec"]["template"]["spec"];
    let domain = if run.is_null() { &template["domain"] } else { &run["spec"]["domain"] };
    let mut out = String::new();
    let mut line = |label: &str, value: &str| {
        if !value.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{label:<14}{value}");
        }
    };
    line("Name", text(&machine["metadata"]["name"]));
    line("Namespace", text(&machine["metadata"]["namespace"]));
    line("Status", text(&machine["status"]["printableStatus"]));
    line("", &super::power::complaint(machine));
    line("Run strategy", text(&machine["status"]["runStrategy"]));
    line("Node", text(&run["status"]["nodeName"]));
    line("Guest", text(&run["status"]["guestOSInfo"]["prettyName"]));
    line("CPUs", &cpus(domain));
    line("Memory", &memory(domain));
    line("Started", started(run));
    for interface in run["status"]["interfaces"].as_array().into_iter().flatten() {
        let addresses: Vec<&str> = interface["ipAddresses"].as_array().into_iter().flatten().map(text).collect();
        line(
            "Network",
            &format!("{}  {}  {}", text(&interface["name"]), text(&interface["mac"]), addresses.join(", ")),
        );
    }
    for volume in template["volumes"].as_array().into_iter().flatten() {
        line("Disk", &format!("{}  {}", text(&volume["name"]), source(volume)));
    }
    let conditions = machine["status"]["conditions"].as_array().into_iter().flatten();
    for condition in
        conditions.filter(|condition| condition["type"] == "RestartRequired" && condition["status"] == "True")
    {
        line("Note", text(&condition["message"]));
    }
    let mut recent: Vec<&Value> = events["items"].as_array().into_iter().flatten().collect();
    recent.sort_by_key(|event| text(&event["lastTimestamp"]).to_owned());
    if !recent.is_empty() {
        out.push_str("\nEvents\n");
        let row = |event: &&Value| {
            let cells = ["lastTimestamp", "type", "reason", "message"];
            cells.iter().map(|field| text(&event[*field]).to_owned()).collect()
        };
        out.push_str(&output::rows(
            &["when", "type", "reason", "message"],
            recent.iter().rev().take(10).rev().map(row),
        ));
    }
    out
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn cpus(domain: &Value) -> String {
    let count = |field: &str| domain["cpu"][field].as_u64().unwrap_or(1);
    (count("cores") * count("sockets") * count("threads")).to_string()
}

fn memory(domain: &Value) -> String {
    let candidates = [
        &domain["memory"]["guest"],
        &domain["resources"]["limits"]["memory"],
        &domain["resources"]["requests"]["memory"],
    ];
    candidates.iter().find_map(|value| value.as_str()).unwrap_or_default().to_owned()
}

fn started(run: &Value) -> &str {
    let transitions = run["status"]["phaseTransitionTimestamps"].as_array().into_iter().flatten();
    let running = transitions.filter(|transition| transition["phase"] == "Running");
    running.map(|transition| text(&transition["phaseTransitionTimestamp"])).next().unwrap_or_default()
}

fn source(volume: &Value) -> String {
    let kinds = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
    let named = |(kind, source): (&String, &Value)| {
        let fields = ["claimName", "image", "path", "capacity", "name"];
        let detail = fields.iter().find_map(|field| source[*field].as_str()).unwrap_or_default();
        format!("{kind} {detail}").trim_end().to_owned()
    };
    kinds.map(named).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_matters_is_shown_and_the_rest_left_out() {
        let machine = json!({
            "metadata": {"name": "web", "namespace": "apps"},
            "spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}},
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "web-0"}}]}}},
            "status": {"printableStatus": "Running"},
        });
        let instance = json!({"spec": {"domain": {"cpu": {"cores": 2, "sockets": 2}}}, "status": {"nodeName": "n1",
            "interfaces": [{"name": "default", "mac": "02:00:00:00:00:01", "ipAddresses": ["10.0.0.5", "fd00::5"]}]}});
        let text = described(&machine, Some(&instance), &json!({"items": []}));
        for line in [
            "Name          web",
            "CPUs          4",
            "Node          n1",
            "default  02:00:00:00:00:01  10.0.0.5, fd00::5",
            "Disk          root  persistentVolumeClaim web-0",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("Events") && !text.contains("Guest "), "{text}");
    }
}

//! Lists of any kind, printed as asked.

use anyhow::Context;

use crate::client::{Client, Kind};
use crate::output::{self, Format, OutputArgs};
use crate::{Failure, print};

pub(crate) async fn run(
    client: &Client,
    kind: Kind,
    all_namespaces: bool,
    selector: Option<&str>,
    output: OutputArgs,
) -> Result<(), Failure> {
    let namespace = if all_namespaces { "" } else { &client.namespace };
    let mut path = kind.all(namespace);
    if let Some(selector) = selector {
        path.push_str("?labelSelector=");
        path.extend(selector.bytes().map(escaped));
    }
    match output.output {
        Format::Table | Format::Wide => {
            let table = client.table(&path).await?;
            let text = output::server_table(&table, output.output == Format::Wide, all_namespaces);
            if text.is_empty() {
                let place = if all_namespaces { String::new() } else { format!(" in namespace {namespace}") };
                eprintln!("no {}{place}", kind.plural);
            }
            print(&text)
        }
        format => {
            let list = client.get(&path).await.context("cannot list")?;
            print(&output::document(format, &list)?)
        }
    }
}

/// A byte of a query.
pub(crate) fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

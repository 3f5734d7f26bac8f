//! What commands print: tables for people, JSON and YAML for programs.

use anyhow::Context;
use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputArgs {
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// Rows under a header, aligned, with two spaces between them, as kubectl prints them.
pub(crate) fn rows(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    format!("{}\n", lines.join("\n"))
}

/// The server's own table.
pub(crate) fn server_table(table: &Value, is_wide: bool, with_namespace: bool) -> String {
    let columns: &[Value] = table["columnDefinitions"].as_array().map_or(&[], Vec::as_slice);
    let is_shown = |column: &Value| is_wide || column["priority"].as_i64().unwrap_or_default() == 0;
    let shown: Vec<usize> = (0..columns.len()).filter(|index| is_shown(&columns[*index])).collect();
    let mut header: Vec<&str> =
        shown.iter().map(|index| columns[*index]["name"].as_str().unwrap_or_default()).collect();
    if with_namespace {
        header.insert(0, "namespace");
    }
    let found: &[Value] = table["rows"].as_array().map_or(&[], Vec::as_slice);
    if found.is_empty() {
        return String::new();
    }
    let row = |row: &Value| {
        let mut cells: Vec<String> = shown.iter().map(|index| cell(&row["cells"][*index])).collect();
        if with_namespace {
            cells.insert(0, cell(&row["object"]["metadata"]["namespace"]));
        }
        cells
    };
    rows(&header, found.iter().map(row))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// An object or a list, as a program wants it.
pub(crate) fn document(format: Format, value: &Value) -> anyhow::Result<String> {
    Ok(match format {
        Format::Yaml => serde_saphyr::to_string(value).context("cannot write YAML")?,
        Format::Name => names(value),
        Format::Json | Format::Table | Format::Wide => format!("{}\n", serde_json::to_string_pretty(value)?),
    })
}

fn names(value: &Value) -> String {
    let one = |object: &Value| format!("{}\n", object["metadata"]["name"].as_str().unwrap_or_default());
    match value["items"].as_array() {
        Some(items) => items.iter().map(one).collect(),
        None => one(value),
    }
}

/// `12.3 GiB`, for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut whole, mut rest, mut unit) = (count, 0, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        rest = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    if unit == 0 { format!("{whole} B") } else { format!("{whole}.{} {}", rest * 10 / 1024, UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_aligned_and_end_without_blanks() {
        let text =
            rows(&["Name", "Phase"], [vec!["a".into(), "Running".into()], vec!["long-name".into(), String::new()]]);
        assert_eq!(text, "NAME       PHASE\na          Running\nlong-name\n");
    }

    #[test]
    fn the_servers_table_hides_wide_columns() {
        let table = json!({
            "columnDefinitions": [{"name": "Name"}, {"name": "Node", "priority": 1}, {"name": "Ready"}],
            "rows": [{"cells": ["vm", "n1", true], "object": {"metadata": {"namespace": "apps"}}}],
        });
        assert_eq!(server_table(&table, false, false), "NAME  READY\nvm    true\n");
        assert_eq!(server_table(&table, true, true), "NAMESPACE  NAME  NODE  READY\napps       vm    n1    true\n");
    }

    #[test]
    fn sizes_are_written_for_people() {
        for (count, text) in [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_610_612_736, "1.5 GiB")] {
            assert_eq!(bytes(count), text);
        }
    }
}

//! `croft audit`: who did what, as the server has written it down.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::Value;

use crate::client::{Client, ClientArgs};
use crate::list::escaped;
use crate::{Failure, lifetime, output, print};

const PATH: &str = "/croft/v1/audit";
/// How often it is looked for new entries.
const POLL: Duration = Duration::from_secs(2);
const COLUMNS: [&str; 6] = ["time", "user", "verb", "object", "code", "from"];
const TRIED: &str = "croft.io/tried-user";

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// How many of them
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,
    /// From this time on: RFC 3339, or how long ago, such as 2h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Up to this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// With one of these verbs: create, update, patch, delete, login, …
    #[arg(long, value_name = "VERB", value_delimiter = ',')]
    verb: Vec<String>,
    /// About this kind, such as virtualmachines or virtualmachines.kubevirt.io
    #[arg(long, value_name = "PLURAL")]
    resource: Option<String>,
    /// About objects of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Answered with one of these codes, such as 403 or 4xx
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    code: Vec<String>,
    /// With this text anywhere
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Go on with what comes, the newest last
    #[arg(short, long)]
    follow: bool,
    /// How to print it; json is a line for each
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    Json,
}

pub(crate) async fn run(args: AuditArgs) -> Result<(), Failure> {
    let filters = filters(&args, Timestamp::now()).map_err(Failure::usage)?;
    let client = args.client.connect().await?;
    let (mut entries, mut after) = newest(&client, &filters, args.limit).await?;
    if !args.follow {
        if entries.is_empty() {
            eprintln!("nothing that fits was written down");
        }
        return print(&shown(&entries, args.output, true));
    }
    entries.reverse();
    print(&shown(&entries, args.output, true))?;
    loop {
        tokio::time::sleep(POLL).await;
        let cursor = after.as_deref().map_or_else(String::new, |after| format!("&after={after}"));
        let page = client.get(&format!("{PATH}?limit=1000{filters}{cursor}")).await?;
        after = page["after"].as_str().map(str::to_owned).or(after);
        let mut new = items(&page);
        new.reverse();
        print(&shown(&new, args.output, false))?;
    }
}

/// As many as wanted, the newest first, and where newer ones will be.
async fn newest(client: &Client, filters: &str, limit: usize) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let (mut found, mut cursor, mut after) = (Vec::new(), String::new(), None);
    while found.len() < limit {
        let ask = (limit - found.len()).min(1_000);
        let page = client.get(&format!("{PATH}?limit={ask}{filters}{cursor}")).await?;
        found.extend(items(&page));
        after = after.or_else(|| page["after"].as_str().map(str::to_owned));
        // The server searches a part of the log at a time.
        let Some(before) = page["before"].as_str() else { break };
        cursor = format!("&before={before}");
    }
    Ok((found, after))
}

fn items(page: &Value) -> Vec<Value> {
    page["items"].as_array().cloned().unwrap_or_default()
}

/// As they stand in the query, each after an `&`.
fn filters(args: &AuditArgs, now: Timestamp) -> anyhow::Result<String> {
    let moment = |text: &Option<String>| text.as_deref().map(|text| moment(text, now)).transpose();
    let list = |words: &[String]| Some(words.join(",")).filter(|words| !words.is_empty());
    let pairs = [
        ("since", moment(&args.since)?),
        ("until", moment(&args.until)?),
        ("user", args.user.clone()),
        ("verb", list(&args.verb)),
        ("resource", args.resource.clone()),
        ("namespace", args.client.namespace_said().map(str::to_owned)),
        ("name", args.name.clone()),
        ("code", list(&args.code)),
        ("text", args.text.clone()),
    ];
    let given = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let escape = |text: &str| text.bytes().map(escaped).collect::<Vec<_>>().concat();
    Ok(given.map(|(key, value)| format!("&{key}={}", escape(&value))).collect::<Vec<_>>().concat())
}

/// A time, or how long ago it was.
fn moment(text: &str, now: Timestamp) -> anyhow::Result<String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.to_string());
    }
    match lifetime::parse(text).ok().and_then(|ago| now.checked_sub(ago).ok()) {
        Some(time) => Ok(time.to_string()),
        None => bail!("{text:?} is neither a time such as 2026-01-31T12:00:00Z nor how long ago, such as 2h or 7d"),
    }
}

fn shown(entries: &[Value], form: Form, with_header: bool) -> String {
    if entries.is_empty() {
        return String::new();
    }
    if form == Form::Json {
        return entries.iter().map(|entry| format!("{entry}\n")).collect::<Vec<_>>().concat();
    }
    let table = output::rows(&COLUMNS, entries.iter().map(row));
    if with_header { table } else { table.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default() }
}

fn row(entry: &Value) -> Vec<String> {
    let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let time = text("/stageTimestamp").split('.').next().unwrap_or_default();
    let tried = entry["annotations"][TRIED].as_str().map(|name| format!("{name}?")).unwrap_or_default();
    let user = match (text("/user/username"), text("/impersonatedUser/username")) {
        ("", _) => tried,
        (user, "") => user.to_owned(),
        (user, other) => format!("{user} as {other}"),
    };
    let code = entry["responseStatus"]["code"].as_u64().map(|code| code.to_string()).unwrap_or_default();
    let from = entry["sourceIPs"][0].as_str().unwrap_or_default().to_owned();
    vec![format!("{time}Z"), user, text("/verb").to_owned(), object(entry), code, from]
}

/// `virtualmachines/start default/web`, or the path of what is no object.
fn object(entry: &Value) -> String {
    let object = &entry["objectRef"];
    let part = |key: &str| object[key].as_str().filter(|text| !text.is_empty());
    let Some(resource) = part("resource") else {
        let uri = entry["requestURI"].as_str().unwrap_or_default();
        return uri.split('?').next().unwrap_or_default().to_owned();
    };
    let mut text = resource.to_owned();
    if let Some(subresource) = part("subresource") {
        text = format!("{text}/{subresource}");
    }
    match (part("namespace"), part("name")) {
        (Some(namespace), Some(name)) => format!("{text} {namespace}/{name}"),
        (Some(only), None) | (None, Some(only)) => format!("{text} {only}"),
        (None, None) => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_shown_in_a_line_each() {
        let entries = [
            json!({"stageTimestamp": "2026-01-31T12:00:00.123456Z", "user": {"username": "ann"}, "verb": "update",
                "objectRef": {"resource": "virtualmachines", "subresource": "start", "namespace": "apps", "name": "web"},
                "responseStatus": {"code": 202}, "sourceIPs": ["10.0.0.9"]}),
            json!({"stageTimestamp": "2026-01-31T12:00:01.000000Z", "user": {}, "verb": "login",
                "requestURI": "/v3-public/localProviders/local?action=login", "responseStatus": {"code": 401},
                "annotations": {"croft.io/tried-user": "eve"}}),
        ];
        let expected = "\
TIME                  USER  VERB    OBJECT                             CODE  FROM
2026-01-31T12:00:00Z  ann   update  virtualmachines/start apps/web     202   10.0.0.9
2026-01-31T12:00:01Z  eve?  login   /v3-public/localProviders/local    401\n";
        assert_eq!(shown(&entries, Form::Table, true).replace(' ', ""), expected.replace(' ', ""));
        assert!(shown(&entries, Form::Table, false).starts_with("2026-"));
        assert_eq!(shown(&entries, Form::Json, true).lines().count(), 2);
        assert_eq!(shown(&[], Form::Table, true), "");
    }

    #[test]
    fn times_may_be_how_long_ago() {
        let now = Timestamp::from_second(86_400).unwrap();
        for (text, expected) in [
            ("2026-01-31T13:00:00+01:00", Some("2026-01-31T12:00:00Z")),
            ("2h", Some("1970-01-01T22:00:00Z")),
            ("yesterday", None),
            ("99999999w", None),
        ] {
            assert_eq!(moment(text, now).ok().as_deref(), expected, "{text}");
        }
    }
}

//! Sends a scenario's requests and collects the normalised answers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_testkit::{Answer, Call, Client, Server, Stream, eventually_within, patience};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::normalise::{self, Shape};
use super::scenario::{Scenario, Step, Until};

/// The normalised answer to each step, by its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Played {
    pub steps: BTreeMap<String, Value>,
}

/// Plays one scenario from its beginning to its end.
pub async fn play(server: &Server, scenario: &Scenario) -> Result<Played> {
    let mut player = Player {
        server,
        admin: server.client()?,
        variables: BTreeMap::from([("ns".to_owned(), format!("corpus-{}", scenario.name))]),
        watches: BTreeMap::new(),
    };
    player.make_namespace().await?;
    let mut played = Played::default();
    for step in &scenario.steps {
        let answer = player.step(step).await.with_context(|| format!("{}: {}", scenario.name, step.name))?;
        played.steps.insert(step.name.clone(), answer);
    }
    Ok(played)
}

struct Player<'a> {
    server: &'a Server,
    admin: Client,
    variables: BTreeMap<String, String>,
    watches: BTreeMap<String, Stream>,
}

impl Player<'_> {
    /// A namespace with what controllers put into every one, so that lists are the same in every run.
    async fn make_namespace(&self) -> Result<()> {
        let ns = &self.variables["ns"];
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
        self.admin.post("/api/v1/namespaces", &body).await?.ok()?;
        for (resource, name) in [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")] {
            let path = format!("/api/v1/namespaces/{ns}/{resource}");
            if !self.server.has_controllers() {
                self.admin.post(&path, &json!({"metadata": {"name": name}})).await?.ok()?;
            }
            // A server that does not furnish its namespaces shows it in the lists.
            let _ = eventually_within(Duration::from_secs(5), async || {
                self.admin.get(&format!("{path}/{name}")).await?.ok()
            })
            .await;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<Value> {
        match (&step.request, &step.events) {
            (Some(request), _) if step.watch.is_some() => self.open_watch(step, request).await,
            (Some(request), _) => self.request(step, request).await,
            (None, Some(watch)) => self.read_events(step, watch).await,
            (None, None) => bail!("a step has `do` or `events`"),
        }
    }

    async fn request(&mut self, step: &Step, request: &str) -> Result<Value> {
        let call = self.call(step, request)?;
        let client = self.client(step)?;
        let answer = match &step.until {
            None => client.send(call).await?,
            Some(until) => {
                let mut last = None;
                let reached = eventually_within(patience().min(Duration::from_secs(15)), async || {
                    let answer = client.send(call.clone()).await?;
                    let reached = until.holds(&answer);
                    last = Some(answer);
                    if reached { Ok(()) } else { Err(anyhow::anyhow!("not yet")) }
                })
                .await;
                // The answer that never became right says more than the fact.
                match last {
                    Some(answer) => answer,
                    None => bail!("{:#}", reached.err().context("neither an answer nor an error")?),
                }
            }
        };
        let body = answer.json();
        for (name, pointer) in &step.capture {
            let value = match body.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => format!("(no {pointer})"),
            };
            self.variables.insert(name.clone(), value);
        }
        Ok(self.record(step, &answer))
    }

    fn record(&self, step: &Step, answer: &Answer) -> Value {
        let mut body = answer.json();
        if body.is_null() && !answer.body.is_empty() {
            body = Value::String(answer.text());
        }
        let shape = Shape { keep: &step.keep, drop: &step.drop, sort: &step.sort, without: &step.without };
        let mut record = json!({"code": answer.status, "body": normalise::body(body, &shape, &self.variables)});
        let content_type = answer.header("content-type").unwrap_or_default();
        record["type"] = Value::String(normalise::content_type(content_type));
        let warnings = answer.headers.get_all("warning").iter().filter_map(|v| v.to_str().ok());
        // Croft says so when it only stores what a cluster would act upon; there is nothing to compare that with.
        let warnings: Vec<&str> = warnings.filter(|text| !text.starts_with("299 - \"Croft ")).collect();
        if !warnings.is_empty() {
            record["warnings"] = json!(warnings);
        }
        record
    }

    async fn open_watch(&mut self, step: &Step, request: &str) -> Result<Value> {
        let call = self.call(step, request)?;
        let mut stream = self.client(step)?.open(call).await?;
        let content_type = stream.headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let mut record = json!({"code": stream.status, "type": normalise::content_type(content_type)});
        if stream.status == 200 {
            let name = step.watch.clone().context("checked by the caller")?;
            self.watches.insert(name, stream);
        } else {
            let body = stream.event().await?.unwrap_or_default();
            record["body"] = normalise::body(body, &Shape::default(), &self.variables);
        }
        Ok(record)
    }

    async fn read_events(&mut self, step: &Step, watch: &str) -> Result<Value> {
        let Some(stream) = self.watches.get_mut(watch) else { return Ok(json!({"error": "the watch was refused"})) };
        let shape = Shape { keep: &step.keep, drop: &step.drop, ..Shape::default() };
        let mut events = Vec::new();
        while step.count.is_none_or(|count| events.len() < count) {
            match stream.event_within(Duration::from_secs(10)).await {
                Ok(Some(event)) => events.push(normalise::body(event, &shape, &self.variables)),
                Ok(None) => {
                    events.push(json!("end of stream"));
                    break;
                }
                Err(error) => {
                    events.push(json!(format!("error: {error}")));
                    break;
                }
            }
        }
        Ok(json!({"events": events}))
    }

    fn client(&self, step: &Step) -> Result<Client> {
        match step.who.as_deref() {
            None => Ok(self.admin.clone()),
            Some("anonymous") => self.server.anonymous(),
            Some(who) => {
                let token = who.strip_prefix("token:").with_context(|| format!("who is {who:?}?"))?;
                self.server.bearer(&self.fill(token)?)
            }
        }
    }

    fn call(&self, step: &Step, request: &str) -> Result<Call> {
        let (method, path) = request.split_once(' ').with_context(|| format!("not METHOD path: {request:?}"))?;
        let mut call = Call::new(method.parse()?, &self.fill(path)?);
        for (name, value) in &step.headers {
            call = call.header(name, &self.fill(value)?);
        }
        let body = match (&step.body, &step.raw, &step.base64) {
            (Some(body), ..) => Some(self.fill(&body.to_string())?.into_bytes()),
            (_, Some(raw), _) => Some(self.fill(raw)?.into_bytes()),
            (_, _, Some(text)) => Some(STANDARD.decode(text)?),
            _ => None,
        };
        call.body = body.clone().unwrap_or_default().into();
        let with = step.with.as_deref().or(body.as_ref().map(|_| "json"));
        Ok(match with {
            None | Some("none") => call,
            Some(kind) => call.header("content-type", content_type(kind)),
        })
    }

    /// Replaces `${name}` and `${repeat:TEXT:N}`, where `^` in the text stands for a closing brace.
    fn fill(&self, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, tail) = after.split_once('}').context("an open ${")?;
            out.push_str(before);
            match name.strip_prefix("repeat:").and_then(|r| r.rsplit_once(':')) {
                Some((piece, times)) => out.push_str(&piece.replace('^', "}").repeat(times.parse()?)),
                None => out.push_str(self.variables.get(name).with_context(|| format!("no variable {name}"))?),
            }
            rest = tail;
        }
        out.push_str(rest);
        Ok(out)
    }
}

impl Until {
    fn holds(&self, answer: &Answer) -> bool {
        let body = answer.json();
        self.code.is_none_or(|code| code == answer.status)
            && self.at.iter().all(|(pointer, value)| match body.pointer(pointer) {
                None => value.is_null(),
                Some(found) => found == value,
            })
    }
}

fn content_type(kind: &str) -> &str {
    match kind {
        "json" => "application/json",
        "yaml" => "application/yaml",
        "jsonpatch" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        other => other,
    }
}

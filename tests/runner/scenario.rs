//! The form of a scenario file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// One file of the corpus: requests that belong together, in a namespace of their own (`${ns}`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's stem.
    #[serde(skip)]
    pub name: String,
    /// What the scenario is about, for the reader.
    pub about: String,
    /// Needs garbage collection, the life of namespaces or the like, which kube-apiserver alone does not have.
    #[serde(default)]
    pub controllers: bool,
    pub steps: Vec<Step>,
}

/// One request, or one look at a watch that an earlier step opened.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Unique in its file. Defaults to the request line.
    #[serde(default)]
    pub name: String,
    /// `METHOD path?query`.
    #[serde(rename = "do")]
    pub request: Option<String>,
    /// The content type: `json`, `yaml`, `jsonpatch`, `merge`, `strategic`, `apply`, `protobuf`, `none` or a MIME type.
    /// By default `json` when there is a body.
    pub with: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body as an object.
    pub body: Option<Value>,
    /// The body as text; `${repeat:TEXT:N}` makes large ones.
    pub raw: Option<String>,
    /// The body as base64, for protobuf.
    pub base64: Option<String>,
    /// `anonymous`, or `token:TOKEN`; the administrator by default.
    #[serde(rename = "as")]
    pub who: Option<String>,
    /// Variables taken from the answer: name to JSON pointer.
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
    /// Only these parts of the answer's body count.
    #[serde(default)]
    pub keep: Vec<String>,
    /// These parts do not count. `*` stands for any one member.
    #[serde(default)]
    pub drop: Vec<String>,
    /// The items of lists at these pointers are compared as sets.
    #[serde(default)]
    pub sort: Vec<String>,
    /// Items of sorted lists that have one of these words do not count: they are of groups that the reference lacks.
    #[serde(default)]
    pub without: Vec<String>,
    /// Repeat until the answer is so.
    pub until: Option<Until>,
    /// Open a watch under this name instead of reading the whole answer.
    pub watch: Option<String>,
    /// Read the events of this watch...
    pub events: Option<String>,
    /// ...this many; without it, to the end of the stream.
    pub count: Option<usize>,
}

/// A condition on an answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    pub code: Option<u16>,
    /// Pointer to value; a null value stands for "absent".
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
}

impl Scenario {
    pub fn load(path: &Path) -> Result<Self> {
        let mut scenario: Self = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        path.file_stem().and_then(|s| s.to_str()).context("a UTF-8 file name")?.clone_into(&mut scenario.name);
        let mut seen = BTreeMap::<String, usize>::new();
        for step in &mut scenario.steps {
            ensure!(step.request.is_some() != step.events.is_some(), "a step has either `do` or `events`: {step:?}");
            if step.name.is_empty() {
                let what = step.request.clone().or_else(|| step.events.as_ref().map(|w| format!("events of {w}")));
                step.name = what.unwrap_or_default().chars().take(120).collect();
            }
            let times = seen.entry(step.name.clone()).or_default();
            *times += 1;
            if *times > 1 {
                step.name = format!("{} #{times}", step.name);
            }
        }
        Ok(scenario)
    }
}

//! Plays the corpus (`tests/corpus/*.yaml`) against a server and compares the answers.
//!
//! A scenario is a list of requests of our own. What the reference server answered to them, with everything
//! volatile replaced by a placeholder, is kept in `tests/corpus/expected/`; `conformance record` renews it.

mod diff;
mod known;
mod normalise;
mod play;
mod scenario;

pub use diff::{Difference, diff};
pub use known::KnownDifferences;
pub use play::{Played, play};
pub use scenario::{Scenario, Step};

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Where the corpus is.
pub fn corpus_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Every scenario, in the order of their names; `CORPUS_ONLY=a,b` picks some.
pub fn load_corpus() -> Result<Vec<Scenario>> {
    let only = std::env::var("CORPUS_ONLY").unwrap_or_default();
    let mut scenarios = Vec::new();
    for entry in std::fs::read_dir(corpus_dir())? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        let picked = only.is_empty() || only.split(',').any(|one| one == name);
        if path.extension().is_some_and(|ext| ext == "yaml") && name != "known-differences" && picked {
            scenarios.push(Scenario::load(&path).with_context(|| path.display().to_string())?);
        }
    }
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

fn expected_path(scenario: &Scenario) -> PathBuf {
    corpus_dir().join("expected").join(format!("{}.json", scenario.name))
}

/// What the reference answered when it was last asked.
pub fn load_expected(scenario: &Scenario) -> Result<Played> {
    let path = expected_path(scenario);
    let text =
        std::fs::read(&path).with_context(|| format!("no expectations at {}; record them first", path.display()))?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Keeps `played` as what is expected from now on.
pub fn save_expected(scenario: &Scenario, played: &Played) -> Result<()> {
    let mut text = serde_json::to_string_pretty(played)?;
    text.push('\n');
    Ok(std::fs::write(expected_path(scenario), text)?)
}

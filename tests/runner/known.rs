//! The differences that we know of and have explained (`docs/compatibility.md` says them in words).

use std::cell::Cell;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{Difference, corpus_dir};

/// `tests/corpus/known-differences.yaml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct KnownDifferences {
    entries: Vec<Known>,
}

/// One explained difference. In all three patterns `*` stands for any text.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    scenario: String,
    #[serde(default = "any")]
    step: String,
    #[serde(default = "any")]
    at: String,
    /// Why Croft answers otherwise. Not used by the code: an entry without a reason does not load.
    #[expect(dead_code, reason = "required of whoever adds an entry")]
    why: String,
    /// It has explained something.
    #[serde(skip)]
    used: Cell<bool>,
}

fn any() -> String {
    "*".to_owned()
}

impl KnownDifferences {
    pub fn load() -> Result<Self> {
        let path = corpus_dir().join("known-differences.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
    }

    pub fn explains(&self, scenario: &str, step: &str, difference: &Difference) -> bool {
        let matches = |known: &Known| {
            glob(&known.scenario, scenario) && glob(&known.step, step) && glob(&known.at, &difference.at)
        };
        // All that match, so that an entry is stale only if there is nothing left for it to explain.
        self.entries.iter().filter(|known| matches(known)).inspect(|known| known.used.set(true)).count() > 0
    }

    /// Entries that explained nothing: the difference is gone, and the entry should go too.
    pub fn stale(&self) -> Vec<String> {
        let unused = self.entries.iter().filter(|known| !known.used.get());
        unused.map(|known| format!("{} / {} at {}", known.scenario, known.step, known.at)).collect()
    }
}

/// Shell-like matching with `*` only.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text
            .strip_prefix(head)
            .is_some_and(|rest| (0..=rest.len()).filter(|i| rest.is_char_boundary(*i)).any(|i| glob(tail, &rest[i..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_text() {
        for (pattern, text, wanted) in
            [("*", "", true), ("a*c", "abbc", true), ("a*c", "abb", false), ("abc", "abc", true), ("*b*", "abc", true)]
        {
            assert_eq!(glob(pattern, text), wanted, "{pattern} {text}");
        }
    }
}

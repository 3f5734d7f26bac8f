//! Regular expressions, compiled once per request however often a loop asks for them.

use std::collections::HashMap;

use regex::Regex;

use super::Fault;
use super::evaluate::{Evaluated, Evaluation};
use super::value::{Text, Val};
use crate::pattern::compile_within;

/// Larger ones take too long to make.
const MOST_BYTES: usize = 1 << 20;
/// What it costs to compile one, and what each of its characters adds.
const COMPILING: u64 = 10_000;
const COMPILING_CHARACTER: u64 = 100;

pub(super) type Patterns = HashMap<String, Result<Regex, String>>;

impl<'a> Evaluation<'a> {
    /// `matches`, `find` and `findAll`.
    #[inline(never)]
    pub(super) fn search(&self, name: &str, text: &Text<'a>, args: &[Val<'a>]) -> Evaluated<'a> {
        let (pattern, most) = match (name, args) {
            (_, [Val::Text(pattern)]) => (pattern, None),
            ("findAll", [Val::Text(pattern), most]) => (pattern, most.whole_number()),
            _ => return Err(Fault::no_overload()),
        };
        let length = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX);
        if !self.budget.patterns.borrow().contains_key(&**pattern) {
            self.spend(COMPILING.saturating_add(length(pattern).saturating_mul(COMPILING_CHARACTER)))?;
            let compiled = compile_within(pattern, MOST_BYTES);
            self.budget.patterns.borrow_mut().insert(pattern.to_string(), compiled);
        }
        self.spend((length(text) / 10 + 1).saturating_mul(length(pattern) / 4 + 1))?;
        let patterns = self.budget.patterns.borrow();
        let regex = match patterns.get(&**pattern) {
            Some(Ok(regex)) => regex,
            Some(Err(why)) => return Err(Fault::failed(why.as_str())),
            None => return Err(Fault::no_overload()),
        };
        Ok(match name {
            "matches" => Val::Bool(regex.is_match(text)),
            "find" => Val::text(regex.find(text).map_or("", |found| found.as_str())),
            _ => {
                // A negative number is none.
                let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
                let mut found = Vec::new();
                for next in regex.find_iter(text).take(most) {
                    self.spend(1)?;
                    found.push(Val::text(next.as_str()));
                }
                Val::list(found)
            }
        })
    }
}

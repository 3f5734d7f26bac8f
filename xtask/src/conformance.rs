//! The score of Kubernetes' conformance list: which of its behaviours our own tests cover. It rises, or says why it does not.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::output;

/// So many older versions of the list are asked.
const VERSIONS: u8 = 20;
const LIST: &str = "tests/conformance/behaviours.yaml";
const PAGE: &str = "docs/conformance.md";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// How many were covered when this was last written.
    floor: usize,
    /// Each time that fewer were counted than before, on purpose.
    #[serde(default)]
    lowered: Vec<Lowered>,
    behaviours: Vec<Behaviour>,
}

#[derive(Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Lowered {
    by: usize,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Behaviour {
    name: String,
    area: String,
    /// `file::test`.
    #[serde(default)]
    tests: Vec<String>,
    /// Why nothing covers it.
    #[serde(default)]
    missing: String,
}

fn read() -> Result<List> {
    let text = std::fs::read_to_string(LIST).with_context(|| format!("cannot read {LIST}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{LIST} is not a list of behaviours"))
}

/// Every test that is named is there, the score is what it was or better, and the page says so.
pub(crate) fn check() -> Result<Vec<String>> {
    let list = read()?;
    let mut problems: Vec<String> = list.behaviours.iter().filter_map(wrong).collect();
    for reference in list.behaviours.iter().flat_map(|behaviour| &behaviour.tests) {
        if !is_there(reference) {
            problems.push(format!("{LIST}: there is no test {reference}"));
        }
    }
    let covered = covered(&list.behaviours);
    if covered < list.floor {
        problems.push(format!("{LIST}: {covered} behaviours are covered, and {} were: it may only rise", list.floor));
    }
    if covered > list.floor {
        problems.push(format!("{LIST}: {covered} behaviours are covered: write that as the floor"));
    }
    problems.extend(history().iter().flat_map(|before| fallen(&list, before)));
    problems.dedup();
    if std::fs::read_to_string(PAGE).ok().as_deref() != Some(page(&list).as_str()) {
        problems.push(format!("{PAGE} is not what `cargo xtask conformance` writes"));
    }
    Ok(problems)
}

/// Writes the page.
pub(crate) fn write() -> Result<Vec<String>> {
    std::fs::write(PAGE, page(&read()?)).with_context(|| format!("cannot write {PAGE}"))?;
    Ok(Vec::new())
}

/// What the list was before, the newest first. Nothing where there is no history to ask.
fn history() -> Vec<List> {
    let most = format!("-{VERSIONS}");
    let commits = output("git", &["log", &most, "--format=%H", "--", LIST]).unwrap_or_default();
    let text = |commit: &str| output("git", &["show", &format!("{commit}:{LIST}")]).ok();
    commits.lines().filter_map(text).filter_map(|text| serde_saphyr::from_str(&text).ok()).collect()
}

/// The floor stands in the same file as what it holds: it is held to what it was.
fn fallen(list: &List, before: &List) -> Vec<String> {
    let explained = list.lowered.iter().filter(|one| !before.lowered.contains(one) && !one.why.is_empty());
    let least = before.floor.saturating_sub(explained.map(|one| one.by).sum());
    let mut problems = Vec::new();
    if list.floor < least {
        problems.push(format!(
            "{LIST}: the floor is {}, and was {least}: it may only rise, or say why in `lowered`",
            list.floor
        ));
    }
    let (rows, were) = (list.behaviours.len(), before.behaviours.len());
    if rows < were {
        problems.push(format!("{LIST}: it has {rows} behaviours, and had {were}: none is left out"));
    }
    problems
}

fn wrong(behaviour: &Behaviour) -> Option<String> {
    let name = &behaviour.name;
    (behaviour.tests.is_empty() == behaviour.missing.is_empty())
        .then(|| format!("{LIST}: {name:?} needs either tests or a reason why there are none"))
}

fn covered(behaviours: &[Behaviour]) -> usize {
    behaviours.iter().filter(|behaviour| !behaviour.tests.is_empty()).count()
}

/// A test of a Rust file or a step of one, or a step of a file of the corpus.
fn is_there(reference: &str) -> bool {
    let Some((path, name)) = reference.split_once("::") else { return false };
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    match path.rsplit_once('.') {
        Some((_, "rs")) => is_run(&text, name, &mut Vec::new()),
        Some((_, "yaml")) => text.contains(&format!("name: {name},")),
        _ => false,
    }
}

/// Whether a test runs that function: it is one, or one of the file calls it.
fn is_run<'a>(text: &'a str, name: &'a str, asked: &mut Vec<&'a str>) -> bool {
    let Some((attributes, _)) = function(text, name) else { return false };
    if attributes.iter().any(|line| line.contains("test]") || line.contains("test(")) {
        return true;
    }
    let mut lists = text.split("on_every_server!(").skip(1).filter_map(|list| list.split(')').next());
    if lists.any(|list| list.split(',').any(|word| word.trim() == name)) {
        return true;
    }
    asked.push(name);
    let call = format!("{name}(");
    let calls = |body: &str| body.match_indices(&call).any(|(at, _)| !body[..at].ends_with(is_of_a_name));
    for caller in text.lines().filter_map(name_of) {
        if !asked.contains(&caller)
            && function(text, caller).is_some_and(|(_, body)| calls(&body))
            && is_run(text, caller, asked)
        {
            return true;
        }
    }
    false
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The name of the function that begins in that line.
fn name_of(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("async ");
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// What stands above a function, and what is in it, without comments.
fn function<'a>(text: &'a str, name: &str) -> Option<(Vec<&'a str>, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| name_of(line) == Some(name))?;
    let is_above = |line: &&&str| line.trim_start().starts_with("#[");
    let above = lines[..at].iter().rev().take_while(is_above).copied().collect();
    let indent = lines[at].len() - lines[at].trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let is_short = lines[at].ends_with('}');
    let body = lines[at + 1..].iter().take_while(|line| !is_short && **line != end);
    let body: Vec<&str> = body.filter_map(|line| line.split("//").next()).collect();
    Some((above, body.join("\n")))
}

fn page(list: &List) -> String {
    let mut areas = BTreeMap::<&str, Vec<&Behaviour>>::new();
    for behaviour in &list.behaviours {
        areas.entry(&behaviour.area).or_default().push(behaviour);
    }
    let mut page = format!(
        "# Conformance\n\nKubernetes publishes a list of behaviours that a conformant cluster has. Of those up to release 1.34, all of the API's \
         machinery\n(sig-api-machinery) are here, and of the other areas those that we chose because they are about the API: Croft runs virtual\n\
         machines and no pods, and most of what needs containers that run is left out. Of these {} behaviours, {} are covered by our own\n\
         tests, which pass. `cargo xtask check` sees to it that each test named in\n\
         [behaviours.yaml](../tests/conformance/behaviours.yaml) is there, and that the number does not fall, unless the list says why.\n\
         `cargo xtask conformance` writes this page.\n\n| area | covered | of |\n|---|---|---|\n",
        list.behaviours.len(),
        covered(&list.behaviours),
    );
    for (area, behaviours) in &areas {
        let covered = behaviours.iter().filter(|behaviour| !behaviour.tests.is_empty()).count();
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| {area} | {covered} | {} |", behaviours.len());
    }
    page.push_str("\n## Not covered\n\n| area | behaviour | why |\n|---|---|---|\n");
    for (area, behaviours) in &areas {
        for behaviour in behaviours.iter().filter(|behaviour| behaviour.tests.is_empty()) {
            let _ = writeln!(page, "| {area} | {} | {} |", behaviour.name, behaviour.missing);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_their_names() {
        assert!(is_there("src/conformance.rs::tests_are_found_by_their_names"));
        assert!(!is_there("src/conformance.rs::no_such_test") && !is_there("src/nothing.rs::x") && !is_there("x"));
    }

    #[test]
    fn a_function_that_no_test_runs_is_no_test() {
        let file = "on_every_server!(listed, also_listed);\n#[tokio::test(flavor = \"x\")]\nasync fn whole() {\n    step().await;\n}\n\
            async fn step() {\n    inner(1);\n    // commented(2)\n}\nfn inner(n: u8) {}\nfn commented(n: u8) {}\n\
            fn circle() {\n    other_circle();\n}\nfn other_circle() {\n    circle();\n    left();\n}\nfn left() {}\n\
            #[test]\nfn bare() {\n    not_left();\n}\nfn listed() {}\n";
        for (name, is_test) in [
            ("whole", true),
            ("step", true),
            ("inner", true),
            ("bare", true),
            ("listed", true),
            ("commented", false),
            ("circle", false),
            ("left", false),
            ("nothing", false),
        ] {
            assert_eq!(is_run(file, name, &mut Vec::new()), is_test, "{name}");
        }
    }

    fn behaviour(tests: &[&str], missing: &str) -> Behaviour {
        Behaviour {
            name: "n".to_owned(),
            area: "a".to_owned(),
            tests: tests.iter().map(ToString::to_string).collect(),
            missing: missing.to_owned(),
        }
    }

    #[test]
    fn the_score_falls_for_a_reason_or_not_at_all() {
        let list = |rows: usize, floor: usize, lowered: &[(usize, &str)]| List {
            floor,
            lowered: lowered.iter().map(|(by, why)| Lowered { by: *by, why: (*why).to_owned() }).collect(),
            behaviours: (0..rows).map(|_| behaviour(&[], "later")).collect(),
        };
        let before = list(5, 4, &[(1, "long ago")]);
        for (now, problems) in [
            (list(5, 4, &[(1, "long ago")]), 0),
            (list(6, 5, &[(1, "long ago")]), 0),
            (list(5, 3, &[(1, "long ago")]), 1),
            (list(5, 3, &[(1, "long ago"), (1, "a reason")]), 0),
            (list(5, 2, &[(1, "long ago"), (1, "a reason")]), 1),
            (list(5, 3, &[(1, "long ago"), (1, "")]), 1),
            (list(4, 3, &[(1, "long ago")]), 2),
        ] {
            assert_eq!(fallen(&now, &before).len(), problems, "{} of {}", now.floor, now.behaviours.len());
        }
    }

    #[test]
    fn a_behaviour_has_tests_or_a_reason() {
        assert!(wrong(&behaviour(&["a::b"], "")).is_none() && wrong(&behaviour(&[], "later")).is_none());
        assert!(wrong(&behaviour(&[], "")).is_some() && wrong(&behaviour(&["a::b"], "later")).is_some());
    }
}

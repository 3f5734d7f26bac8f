//! House rules about the text of files: nothing of anybody's machine, no notes to self, no links to nowhere.

use std::path::Path;

use anyhow::{Context, Result};

use crate::output;

/// Paths that exist on one machine only. Written so that this file does not contain them.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// A note without an issue is forgotten.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// What is made or fetched here, as `.gitignore` has it, and git's own.
const NO_SOURCE: &[&str] = &[
    ".git",
    "data",
    "fuzz/found",
    "fuzz/target",
    "target",
    "ui/dist",
    "ui/node_modules",
    "ui/playwright-report",
    "ui/test-results",
];

pub(crate) fn check() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for path in &files()? {
        // Binary files, and files deleted but not yet committed, have no text to check.
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let number = |(index, line)| (index + 1, line);
        for (number, line) in text.lines().enumerate().map(number) {
            let dead = links(path, line).filter(|link| !leads_somewhere(path, link));
            problems.extend(dead.map(|link| format!("{path}:{number}: a link to nowhere: {link}")));
            problems.extend(complaints(path, line).into_iter().map(|what| format!("{path}:{number}: {what}")));
        }
    }
    Ok(problems)
}

/// Those of the repository. An archive of the source has no history to ask, and git tells nothing of a directory that is somebody
/// else's.
fn files() -> Result<Vec<String>> {
    let listed = output("git", &["ls-files"]).unwrap_or_default();
    if !listed.is_empty() {
        return Ok(listed.lines().map(str::to_owned).collect());
    }
    let mut found = Vec::new();
    walk(Path::new("."), Path::new(""), &mut found)?;
    Ok(found)
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<String>) -> Result<()> {
    let entries = std::fs::read_dir(root.join(dir)).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = dir.join(entry.file_name());
        if NO_SOURCE.iter().any(|made| path == Path::new(made)) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(root, &path, found)?;
        } else {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

fn complaints(path: &str, line: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A guest's users have their homes too; its image is made of such paths.
    let is_guest = path.starts_with("images/");
    if let Some(machine) = MACHINE_PATHS.iter().find(|machine| contains_path(line, machine))
        && !is_guest
    {
        found.push(format!("a path of one machine: {machine}"));
    }
    let is_source = Path::new(path).extension().is_some_and(|extension| extension == "rs");
    if is_source && let Some(note) = NOTES.iter().find(|note| is_note(line, note)) {
        found.push(format!("{note} without an issue: write {note}(#123)"));
    }
    found
}

/// The targets of a Markdown file's links to other files of the repository.
fn links<'a>(path: &str, line: &'a str) -> impl Iterator<Item = &'a str> {
    let is_markdown = Path::new(path).extension().is_some_and(|extension| extension == "md");
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(move |target| is_markdown && !target.contains("://") && !target.starts_with('#'))
}

fn leads_somewhere(path: &str, link: &str) -> bool {
    let file = link.split_once('#').map_or(link, |(file, _)| file);
    Path::new(path).parent().is_some_and(|dir| dir.join(file).exists())
}

/// The path itself, not the end of a longer one (`/apis/x/users/…`, `https://host/home/…`).
fn contains_path(line: &str, path: &str) -> bool {
    line.match_indices(path)
        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "/}>.-_*".contains(c)))
}

fn is_note(line: &str, note: &str) -> bool {
    let Some((_, comment)) = line.split_once("//") else { return false };
    let Some(at) = comment.find(note) else { return false };
    let after = &comment[at + note.len()..];
    !after.starts_with("(#") && !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_machine_are_found() {
        let user = MACHINE_PATHS[0];
        for (line, bad) in [
            (format!("let path = \"{user}jane/x\";"), true),
            (format!("see {user}jane"), true),
            (format!("https://example.com{user}jane"), false),
            ("/var/lib/croft".to_owned(), false),
        ] {
            assert_eq!(!complaints("a.md", &line).is_empty(), bad, "{line}");
            assert!(complaints("images/tiny/test", &line).is_empty(), "{line}");
        }
    }

    #[test]
    fn without_git_the_source_is_found_and_nothing_that_was_made() {
        let mut found = Vec::new();
        walk(Path::new(".."), Path::new(""), &mut found).unwrap();
        for file in ["Makefile", "crates/backup/src/target/s3.rs", "ui/package.json", "xtask/src/text.rs"] {
            assert!(found.iter().any(|path| path == file), "{file} is missing");
        }
        for made in NO_SOURCE {
            let made = found.iter().find(|path| Path::new(path).starts_with(made));
            assert!(made.is_none(), "{made:?} is no source");
        }
    }

    #[test]
    fn links_are_followed_within_the_repository() {
        let line = "see [a](docs/a.md), [b](https://example.com/b), [c](#c) and [d](d.md#part)";
        assert_eq!(links("README.md", line).collect::<Vec<_>>(), ["docs/a.md", "d.md#part"]);
        assert_eq!(links("main.rs", line).count(), 0);
        assert!(leads_somewhere("Cargo.toml", "src/main.rs#L1"));
        assert!(!leads_somewhere("Cargo.toml", "src/nothing.rs"));
    }

    #[test]
    fn notes_need_an_issue() {
        let note = NOTES[0];
        for (path, line, bad) in [
            ("a.rs", format!("// {note}: later"), true),
            ("a.rs", format!("// {note}(#12): later"), false),
            ("a.rs", format!("let {note} = 1;"), false),
            ("a.rs", format!("// {note}S are fine"), false),
            ("a.md", format!("// {note}: later"), false),
        ] {
            assert_eq!(!complaints(path, &line).is_empty(), bad, "{line}");
        }
    }
}

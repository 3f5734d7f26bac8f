//! What somebody types at the terminal when asked.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Context;
use croft_pki::Secret;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Without showing it; `None` if there is no terminal.
pub(crate) fn hidden(question: &str) -> anyhow::Result<Option<Secret>> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Ok(None);
    }
    // Standard output is for what the command is to print.
    eprint!("{question}");
    std::io::stderr().flush()?;
    let before = tcgetattr(&stdin)?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &quiet)?;
    let line = read();
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    eprintln!();
    Ok(Some(line?))
}

/// Something that is of no use to those who see it; a program may send it too.
pub(crate) fn shown(question: &str) -> anyhow::Result<Secret> {
    eprint!("{question}");
    std::io::stderr().flush()?;
    read()
}

fn read() -> anyhow::Result<Secret> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("cannot read from the terminal")?;
    Ok(Secret::new(line.trim_end_matches(['\r', '\n'])))
}

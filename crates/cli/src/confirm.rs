//! Asking before something is lost.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;

use crate::Failure;

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ConfirmArgs {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl ConfirmArgs {
    /// Only a person at a terminal can be asked; a script has to say `--yes`.
    pub(crate) fn deletion(self, what: &str) -> Result<(), Failure> {
        if self.yes || is_confirmed(what)? {
            return Ok(());
        }
        Err(anyhow::anyhow!("nothing was deleted; --yes does not ask").into())
    }
}

fn is_confirmed(what: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("Delete {what}? What is deleted cannot be brought back. [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

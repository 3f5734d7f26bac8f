//! `croft state`: what the cluster itself is (its objects, keys and certificates), kept for the day when its machine is gone.

mod claim;
mod restore;
mod saved;
mod schedule;
pub(crate) mod scheduled;

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use croft_backup::State;
use croft_store::saved::Head;
use serde_json::json;

use crate::backup::target::{self, TargetArgs};
use crate::client::ClientArgs;
use crate::output::{self, Format, OutputArgs};
use crate::server::leave_no_core;
use crate::{Failure, download, print};

const PATH: &str = "/croft/v1/state";

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    command: StateCommand,
}

#[derive(Debug, Subcommand)]
enum StateCommand {
    /// Save all objects, keys and certificates of the cluster, to a file or to the backup target
    #[command(after_help = target::HELP)]
    Save(SaveArgs),
    /// List what the backup target has
    #[command(after_help = target::HELP)]
    List(ListArgs),
    /// Tell how saving it on a schedule goes (--state-schedule of the server)
    Schedule {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Check a saved file, and tell what it is
    Inspect {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Fill the store of a server that was never started with what was saved
    #[command(after_help = restore::HELP)]
    Restore(Box<restore::RestoreArgs>),
}

#[derive(Debug, Args)]
struct SaveArgs {
    /// Where to save it; without it, to the backup target
    file: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
    /// Of this cluster's states on the target, keep the newest ones and delete the others
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "file")]
    keep: Option<u32>,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: StateArgs) -> Result<(), Failure> {
    // All Secrets of the cluster pass through.
    leave_no_core();
    match args.command {
        StateCommand::Save(save) => self::save(&args.client, &save).await,
        StateCommand::List(list) => self::list(&args.client, &list).await,
        StateCommand::Schedule { output } => schedule::run(&args.client, &output).await,
        StateCommand::Inspect { file, output } => inspect(&file, &output).await,
        StateCommand::Restore(restore) => restore::run(*restore).await,
    }
}

async fn save(client: &ClientArgs, args: &SaveArgs) -> Result<(), Failure> {
    let Some(file) = &args.file else { return save_to_target(client, args).await };
    let about = fetch(client, file).await?;
    print(&format!("{}: {}\n", file.display(), about.words()))?;
    complain(&about)
}

/// Of what is not in it, so that scripts notice. What there is stays.
fn complain(about: &saved::About) -> Result<(), Failure> {
    let Some(lack) = about.lack() else { return Ok(()) };
    Err(anyhow!("{lack}; it is kept all the same, and \"croft secrets status\" tells which they are").into())
}

/// From the server into a file that only its owner can read, and that is whole.
async fn fetch(client: &ClientArgs, file: &Path) -> anyhow::Result<saved::About> {
    let client = client.connect().await?;
    // What is there already stays until the new one is known to be whole.
    let unchecked = file.with_added_extension("unchecked");
    saved::create_private(&unchecked.with_added_extension("partial"))?;
    let checked = async {
        download::save(&client, PATH, "saving", &unchecked).await?;
        let about = saved::check(&unchecked).await?;
        tokio::fs::rename(&unchecked, file).await.with_context(|| format!("cannot write {}", file.display()))?;
        download::keep_name(file)?;
        anyhow::Ok(about)
    };
    let checked = checked.await;
    if checked.is_err() {
        // It may never have been there.
        let _ = tokio::fs::remove_file(&unchecked).await;
    }
    checked
}

async fn save_to_target(client: &ClientArgs, args: &SaveArgs) -> Result<(), Failure> {
    let opened = args.target.open(client).await?;
    let unnamed = saved::Unnamed::new()?;
    let file = unnamed.path();
    download::into(&client.connect().await?, PATH, "saving", &mut tokio::fs::File::create(&file).await?).await?;
    let about = saved::check(&file).await?;
    let kept = opened.store.save_state(described(&about), &file, opened.keys.current()).await;
    let kept = kept.context("cannot write to the backup target")?;
    print(&format!("{}: {}\n", kept.name, about.words()))?;
    if opened.keys.current().is_none() {
        eprintln!("it has the keys and all Secrets of the cluster in it, not encrypted; --key-file FILE encrypts it");
    }
    // The last one that has everything is not to go for one that has not.
    complain(&about)?;
    if let Some(keep) = args.keep {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        let retained = opened.store.retain_states(&kept.cluster, keep, &opened.keys).await;
        for name in retained.context("cannot delete older states")?.damaged {
            eprintln!("{name} on the target is damaged, and does not count as one that is kept");
        }
    }
    Ok(())
}

/// What is said of it on a target. Names sort by age.
fn described(about: &saved::About) -> State {
    let Head { saved, cluster, version, .. } = &about.head;
    let name: String = saved.chars().filter(char::is_ascii_alphanumeric).collect();
    State {
        cluster: cluster.clone(),
        name: name.to_lowercase(),
        saved: saved.clone(),
        version: version.clone(),
        unreadable: about.unreadable,
        ..State::default()
    }
}

async fn list(client: &ClientArgs, args: &ListArgs) -> Result<(), Failure> {
    let opened = args.target.open(client).await?;
    let states = opened.store.states().await.context("cannot list the backup target")?;
    let text = match args.output.output {
        Format::Table | Format::Wide => {
            output::rows(&["NAME", "CLUSTER", "SAVED", "SIZE", "ENCRYPTED"], states.iter().map(row))
        }
        format => output::document(format, &json!({ "items": states }))?,
    };
    print(&text)
}

fn row(state: &State) -> Vec<String> {
    let (name, cluster) = (state.name.clone(), state.cluster.clone());
    if state.is_damaged {
        // Nothing else is known of it.
        return vec![name, cluster, "damaged".to_owned(), "-".to_owned(), "-".to_owned()];
    }
    let key = if state.key.is_empty() { "no" } else { &state.key };
    let saved = match state.unreadable {
        0 => state.saved.clone(),
        lacking => format!("{}, without {lacking} objects", state.saved),
    };
    vec![name, cluster, saved, output::bytes(state.size), key.to_owned()]
}

async fn inspect(file: &Path, output: &OutputArgs) -> Result<(), Failure> {
    let about = saved::check(file).await?;
    let text = match output.output {
        Format::Table | Format::Wide => format!("{}: {}\n", file.display(), about.words()),
        format => output::document(format, &about.document())?,
    };
    print(&text)
}

/// The one that is meant: by its name, or the only cluster's newest. Nobody means a damaged one unless he says so.
fn choose(mut states: Vec<State>, name: Option<&str>) -> anyhow::Result<State> {
    if let Some(name) = name {
        let found = states.into_iter().find(|state| state.name == name);
        return found.ok_or_else(|| anyhow!("the target has no state {name}; \"croft state list\" tells what it has"));
    }
    states.retain(|state| !state.is_damaged);
    let newest = states.last().cloned().ok_or_else(|| anyhow!("the target has no saved state"))?;
    if states.iter().any(|state| state.cluster != newest.cluster) {
        return Err(anyhow!("the target has states of several clusters; say which one with --name"));
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(cluster: &str, name: &str) -> State {
        State { cluster: cluster.to_owned(), name: name.to_owned(), ..State::default() }
    }

    #[test]
    fn the_newest_is_meant_unless_it_is_said() {
        let two = || vec![state("a", "1"), state("a", "2")];
        assert_eq!(choose(two(), None).unwrap().name, "2");
        assert_eq!(choose(two(), Some("1")).unwrap().name, "1");
        assert!(choose(two(), Some("3")).unwrap_err().to_string().contains("has no state 3"));
        assert!(choose(Vec::new(), None).is_err());
        let mixed = vec![state("a", "1"), state("b", "1")];
        assert!(choose(mixed, None).unwrap_err().to_string().contains("several clusters"));
        let damaged = |cluster: &str| State { is_damaged: true, ..state(cluster, "3") };
        let some = || vec![state("a", "1"), damaged("a"), damaged("b")];
        assert_eq!(choose(some(), None).unwrap().name, "1");
        assert!(choose(some(), Some("3")).unwrap().is_damaged);
        assert!(choose(vec![damaged("a")], None).is_err());
    }
}

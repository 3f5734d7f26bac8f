//! What `--state-schedule` and its companions ask for.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use croft_api::cron::Cron;
use croft_backup::Location;

use crate::options::ServerOptions;

/// A week, if one is saved every day.
const KEEP: u32 = 7;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// Known to be one.
    pub cron: String,
    pub keep: u32,
    /// None for the cluster's backup target.
    pub target: Option<Location>,
    /// None for the key of the cluster's backups.
    pub key_file: Option<PathBuf>,
}

pub(crate) fn resolve(options: &ServerOptions) -> anyhow::Result<Option<StateSettings>> {
    let Some(cron) = &options.state_schedule else {
        let alone = [
            ("--state-keep", options.state_keep.is_some()),
            ("--state-target", options.state_target.is_some()),
            ("--state-key-file", options.state_key_file.is_some()),
        ];
        // Somebody believes that states are being saved.
        if let Some((flag, _)) = alone.into_iter().find(|(_, given)| *given) {
            bail!("{flag} needs --state-schedule");
        }
        return Ok(None);
    };
    if Cron::parse(cron).is_none() {
        bail!("--state-schedule: {cron:?} is not a schedule such as \"0 */6 * * *\" or \"@daily\"");
    }
    if options.state_keep == Some(0) {
        bail!("--state-keep: with 0 nothing would be kept");
    }
    Ok(Some(StateSettings {
        cron: cron.clone(),
        keep: options.state_keep.unwrap_or(KEEP),
        target: options.state_target.as_deref().map(target).transpose()?,
        key_file: options.state_key_file.clone(),
    }))
}

fn target(text: &str) -> anyhow::Result<Location> {
    if text.contains("://") {
        return text.parse().context("--state-target");
    }
    if !Path::new(text).is_absolute() {
        bail!("--state-target: {text:?} is neither an absolute path nor an address such as s3://bucket@region/path");
    }
    Ok(Location::Directory { path: text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(schedule: &str, target: Option<&str>) -> ServerOptions {
        ServerOptions {
            state_schedule: Some(schedule.to_owned()),
            state_target: target.map(str::to_owned),
            ..ServerOptions::default()
        }
    }

    #[test]
    fn nothing_is_saved_unless_it_is_asked_for() {
        assert_eq!(resolve(&ServerOptions::default()).unwrap(), None);
        let asked = resolve(&options("@daily", None)).unwrap().unwrap();
        assert_eq!((asked.cron.as_str(), asked.keep, asked.target), ("@daily", 7, None));
        let alone = ServerOptions { state_keep: Some(3), ..ServerOptions::default() };
        assert_eq!(resolve(&alone).unwrap_err().to_string(), "--state-keep needs --state-schedule");
    }

    #[test]
    fn targets_are_directories_or_addresses() {
        let at = |text| resolve(&options("@daily", Some(text))).map(|found| found.unwrap().target.unwrap().to_string());
        assert_eq!(at("/backup/states").unwrap(), "file:///backup/states");
        assert_eq!(at("s3://b@eu/x").unwrap(), "s3://b@eu/x");
        for (text, why) in
            [("states", "neither an absolute path"), ("ftp://x/y", "--state-target"), ("s3://b", "--state-target")]
        {
            let error = format!("{:#}", at(text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        let error = resolve(&options("every day", None)).unwrap_err().to_string();
        assert!(error.contains("\"every day\" is not a schedule"), "{error}");
        let none = ServerOptions { state_keep: Some(0), ..options("@daily", None) };
        assert!(resolve(&none).is_err());
    }
}

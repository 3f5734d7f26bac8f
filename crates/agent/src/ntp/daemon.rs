//! The time daemons that hosts have: chrony, or systemd-timesyncd.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::fs;
use tokio::process::Command;

/// They answer at once, unless they hang.
const PATIENCE: Duration = Duration::from_secs(10);
const HEADER: &str = "# Written by Croft from the setting ntp-servers; changes here are lost.\n";
const TIMESYNCD: [&str; 2] = ["/usr/lib/systemd/systemd-timesyncd", "/lib/systemd/systemd-timesyncd"];

#[derive(Debug, thiserror::Error)]
pub(super) enum DaemonError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} names no sourcedir where servers could be added", path.display())]
    NoSourceDir { path: PathBuf },
    #[error("cannot run {program}")]
    Run {
        program: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{program} does not answer")]
    Silent { program: &'static str },
    #[error("{program} failed: {said}")]
    Failed { program: &'static str, said: String },
}

/// How the clock is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) is_synced: bool,
    pub(super) servers: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Daemon {
    /// By its configuration file.
    Chrony(PathBuf),
    /// By the directory of its additional configuration files.
    Timesyncd(PathBuf),
}

impl Daemon {
    /// The one that is installed. Chrony first: where both are, systemd's own steps back.
    pub(super) async fn find(etc: &Path) -> Option<Self> {
        for config in ["chrony/chrony.conf", "chrony.conf"].map(|name| etc.join(name)) {
            // A configuration can be left over from a daemon that was removed.
            if fs::try_exists(&config).await.unwrap_or(false) && run("chronyc", &["-v"]).await.is_ok() {
                return Some(Self::Chrony(config));
            }
        }
        let systemd = etc.join("systemd");
        let is_installed = TIMESYNCD.iter().any(|program| Path::new(program).exists()) && systemd.is_dir();
        is_installed.then(|| Self::Timesyncd(systemd.join("timesyncd.conf.d")))
    }

    /// Has it ask these servers besides its own, or only its own if there are none. True if that is new.
    pub(super) async fn tell(&self, servers: &[String]) -> Result<bool, DaemonError> {
        match self {
            Self::Chrony(config) => {
                let chrony = Chrony::read(config).await?;
                let lines: Vec<String> = servers.iter().map(|server| format!("server {server} iburst\n")).collect();
                let is_changed = keep(&chrony.sources, &lines.concat()).await?;
                chrony.ask(&["reload", "sources"]).await?;
                Ok(is_changed)
            }
            Self::Timesyncd(dir) => {
                let lines =
                    if servers.is_empty() { String::new() } else { format!("[Time]\nNTP={}\n", servers.join(" ")) };
                let is_changed = keep(&dir.join("croft.conf"), &lines).await?;
                // It reads its files when it starts.
                if is_changed {
                    run("systemctl", &["try-restart", "systemd-timesyncd.service"]).await?;
                }
                Ok(is_changed)
            }
        }
    }

    pub(super) async fn state(&self) -> Result<State, DaemonError> {
        match self {
            Self::Chrony(config) => {
                Ok(sources(&Chrony::read(config).await?.ask(&["-c", "-N", "sources", "-a"]).await?))
            }
            Self::Timesyncd(_) => {
                let clock = run("timedatectl", &["show", "--property=NTPSynchronized"]).await?;
                let servers =
                    run("timedatectl", &["show-timesync", "--property=SystemNTPServers", "--property=ServerName"])
                        .await?;
                Ok(State { is_synced: clock.trim() == "NTPSynchronized=yes", servers: named(&servers) })
            }
        }
    }
}

/// What of chrony's configuration counts here.
#[derive(Debug, PartialEq, Eq)]
struct Chrony {
    /// The file with our servers.
    sources: PathBuf,
    /// Where it takes commands, if not at the usual place.
    socket: Option<String>,
}

impl Chrony {
    async fn read(config: &Path) -> Result<Self, DaemonError> {
        let text = fs::read_to_string(config).await;
        let text = text.map_err(|source| DaemonError::Read { path: config.to_owned(), source })?;
        Self::parse(&text).ok_or_else(|| DaemonError::NoSourceDir { path: config.to_owned() })
    }

    fn parse(text: &str) -> Option<Self> {
        let values = |directive: &'static str| {
            text.lines().filter_map(move |line| {
                let (name, value) = line.trim().split_once(char::is_whitespace)?;
                (name.eq_ignore_ascii_case(directive)).then(|| value.trim())
            })
        };
        // What is under /run is DHCP's, and gone after a reboot.
        let dir = values("sourcedir").find(|dir| !dir.starts_with("/run/")).or_else(|| values("sourcedir").next())?;
        let socket = values("bindcmdaddress").find(|address| address.starts_with('/')).map(str::to_owned);
        Some(Self { sources: Path::new(dir).join("croft.sources"), socket })
    }

    async fn ask(&self, words: &[&str]) -> Result<String, DaemonError> {
        let place = self.socket.iter().flat_map(|socket| ["-h", socket.as_str()]);
        run("chronyc", &place.chain(words.iter().copied()).collect::<Vec<_>>()).await
    }
}

/// `^,*,name,…`: a star is where the time comes from.
fn sources(lines: &str) -> State {
    let mut state = State::default();
    for line in lines.lines() {
        let mut fields = line.split(',');
        let (Some(_mode), Some(mark), Some(name)) = (fields.next(), fields.next(), fields.next()) else { continue };
        state.is_synced |= mark == "*";
        state.servers.push(name.to_owned());
    }
    state
}

/// The servers that were set, or else the one that it has found by itself.
fn named(properties: &str) -> Vec<String> {
    let value = |name: &str| {
        let mut lines = properties.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let set = value("SystemNTPServers");
    let servers = if set.is_empty() { value("ServerName") } else { set };
    servers.split_whitespace().map(str::to_owned).collect()
}

/// Brings a file to this content; there is none if that is empty. True if it was another.
async fn keep(path: &Path, lines: &str) -> Result<bool, DaemonError> {
    let old = fs::read_to_string(path).await.ok();
    let new = (!lines.is_empty()).then(|| format!("{HEADER}{lines}"));
    if old == new {
        return Ok(false);
    }
    let written = async {
        let Some(new) = new else { return fs::remove_file(path).await };
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).await?;
        }
        // The daemons overlook files of other names.
        let draft = path.with_extension("new");
        fs::write(&draft, new).await?;
        fs::rename(&draft, path).await
    };
    written.await.map_err(|source| DaemonError::Write { path: path.to_owned(), source })?;
    Ok(true)
}

/// What a program says; it has to succeed.
async fn run(program: &'static str, words: &[&str]) -> Result<String, DaemonError> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    let Ok(output) = tokio::time::timeout(PATIENCE, command.output()).await else {
        return Err(DaemonError::Silent { program });
    };
    let output = output.map_err(|source| DaemonError::Run { program, source })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = [text(&output.stderr), text(&output.stdout)].into_iter().find(|said| !said.is_empty());
    Err(DaemonError::Failed { program, said: said.unwrap_or_else(|| output.status.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chronys_configuration_says_where_servers_and_commands_go() {
        let debian = "# sourcedir /not/this\npool 2.debian.pool.ntp.org iburst\nsourcedir /run/chrony-dhcp\n\
                      sourcedir /etc/chrony/sources.d\n";
        let expected = Chrony { sources: "/etc/chrony/sources.d/croft.sources".into(), socket: None };
        assert_eq!(Chrony::parse(debian), Some(expected));
        let private = "bindcmdaddress 127.0.0.1\n  bindcmdaddress /x/chronyd.sock\nSourceDir /run/mine";
        let expected = Chrony { sources: "/run/mine/croft.sources".into(), socket: Some("/x/chronyd.sock".to_owned()) };
        assert_eq!(Chrony::parse(private), Some(expected));
        assert_eq!(Chrony::parse("pool a.example"), None);
    }

    #[test]
    fn the_answers_of_both_daemons_are_understood() {
        let lines = "^,?,192.0.2.1,0,6,0,4294967295,0.0,0.0,0.0\n^,*,ntp.example.com,2,6,377,12,0.1,0.1,0.1\n";
        let state = sources(lines);
        assert_eq!(state, State { is_synced: true, servers: vec!["192.0.2.1".into(), "ntp.example.com".into()] });
        assert_eq!(sources(""), State::default());
        assert_eq!(named("SystemNTPServers=a.example b.example\nServerName=b.example\n"), ["a.example", "b.example"]);
        assert_eq!(named("SystemNTPServers=\nServerName=0.debian.pool.ntp.org\n"), ["0.debian.pool.ntp.org"]);
    }

    #[tokio::test]
    async fn a_file_is_written_once_and_goes_when_nothing_is_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/croft.sources");
        assert!(!keep(&path, "").await.unwrap());
        assert!(keep(&path, "server a iburst\n").await.unwrap());
        assert!(!keep(&path, "server a iburst\n").await.unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{HEADER}server a iburst\n"));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(keep(&path, "").await.unwrap());
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_host_without_a_daemon_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Daemon::find(dir.path()).await.is_none());
    }
}

//! Several etcd members, each on a host of its own, to be ill-treated.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Call, Client, Host, Process, Protocol, eventually_within, find_program, patience};

/// How long a member may take to say how it is.
const ANSWER: Duration = Duration::from_secs(2);

/// A cluster over plain HTTP. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    program: PathBuf,
    dir: TempDir,
}

#[derive(Debug)]
struct Member {
    host: Host,
    /// `None` while it is dead.
    process: Option<Process>,
    name: String,
    client: Client,
}

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    id: String,
    leader: String,
    applied: u64,
}

impl EtcdCluster {
    /// One member on each host, together.
    pub async fn start(hosts: &[Host]) -> Result<Self> {
        let program = find_program("etcd").context("etcd is not installed (Debian: etcd-server)")?;
        let dir = tempfile::Builder::new().prefix("croft-etcd-").tempdir()?;
        let mut members = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let client = Client::trusting(&client_url(host), "", Protocol::Http1)?;
            members.push(Member { host: host.clone(), process: None, name: format!("m{number}"), client });
        }
        let mut cluster = Self { members, program, dir };
        for number in 0..hosts.len() {
            cluster.spawn(number, "new")?;
        }
        cluster.wait_whole().await?;
        Ok(cluster)
    }

    pub fn host(&self, number: usize) -> &Host {
        &self.members[number].host
    }

    /// All but this one.
    pub fn others(&self, number: usize) -> Vec<&Host> {
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != number);
        others.map(|(_, member)| &member.host).collect()
    }

    /// What `--etcd-endpoints` takes.
    pub fn endpoints(&self) -> String {
        self.members.iter().map(|member| client_url(&member.host)).collect::<Vec<_>>().join(",")
    }

    fn spawn(&mut self, number: usize, state: &str) -> Result<()> {
        let peers = self.members.iter().map(|member| format!("{}={}", member.name, peer_url(&member.host)));
        let peers = peers.collect::<Vec<_>>().join(",");
        let member = &mut self.members[number];
        let (client, peer) = (client_url(&member.host), peer_url(&member.host));
        let mut args: Vec<OsString> = vec!["--data-dir".into(), self.dir.path().join(&member.name).into()];
        args.extend(["--name", &member.name, "--log-level", "warn"].map(Into::into));
        args.extend(["--listen-client-urls", &client, "--advertise-client-urls", &client].map(Into::into));
        args.extend(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer].map(Into::into));
        args.extend(["--initial-cluster", &peers, "--initial-cluster-state", state].map(Into::into));
        let mut wrapper = member.host.wrapper();
        let mut command = Command::new(wrapper.remove(0));
        command.args(wrapper).arg(&self.program).args(args);
        let log = self.dir.path().join(format!("{}.log", member.name));
        member.process = Some(Process::spawn(&format!("etcd {}", member.name), command, &log)?);
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        self.members[number].process.take().context("it is dead already")?.kill()
    }

    /// Starts a member that was killed on the data that it had.
    pub fn start_again(&mut self, number: usize) -> Result<()> {
        self.spawn(number, "existing")
    }

    /// SIGSTOP: it is there, and says nothing.
    pub fn freeze(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::STOP)
    }

    pub fn thaw(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::CONT)
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        self.members[number].process.as_ref().context("it is dead")?.signal(signal)
    }

    /// Which member leads, as most of those say that answer.
    pub async fn leader(&self) -> Result<usize> {
        let conditions = self.conditions().await;
        let known: Vec<&Condition> = conditions.iter().flatten().collect();
        for (number, condition) in conditions.iter().enumerate() {
            let Some(condition) = condition else { continue };
            if known.iter().filter(|one| one.leader == condition.id).count() * 2 > self.members.len() {
                return Ok(number);
            }
        }
        bail!("no member leads: {conditions:?}")
    }

    /// Until there is a leader that is not `old`.
    pub async fn wait_for_leader_other_than(&self, old: usize) -> Result<usize> {
        eventually_within(patience(), async || {
            let leader = self.leader().await?;
            ensure!(leader != old, "member {old} still leads");
            Ok(leader)
        })
        .await
    }

    /// Until every member answers, agrees on the leader and has what the leader has.
    pub async fn wait_whole(&mut self) -> Result<()> {
        eventually_within(patience(), async || {
            for member in &mut self.members {
                member.process.as_mut().context("a member is dead")?.check_running()?;
            }
            self.leader().await?;
            let conditions = self.conditions().await;
            let known: Vec<&Condition> = conditions.iter().flatten().collect();
            ensure!(known.len() == self.members.len(), "not all answer: {conditions:?}");
            ensure!(known.iter().all(|one| one.leader == known[0].leader), "they do not agree: {known:?}");
            let applied = known.iter().map(|one| one.applied);
            let behind = applied.clone().max().unwrap_or(0) - applied.min().unwrap_or(0);
            ensure!(behind < 200, "one is behind: {known:?}");
            Ok(())
        })
        .await
    }

    async fn conditions(&self) -> Vec<Option<Condition>> {
        futures::future::join_all(self.members.iter().map(Member::condition)).await
    }

    /// Makes another member the leader.
    pub async fn move_leader(&self, to: usize) -> Result<()> {
        let from = self.leader().await?;
        let target = self.members[to].condition().await.context("the new leader does not answer")?;
        self.members[from].post("/v3/maintenance/transfer-leadership", &json!({"targetID": target.id})).await?;
        Ok(())
    }

    /// A member is lost with its data; a new one takes its place and its address.
    pub async fn replace(&mut self, number: usize) -> Result<()> {
        let lost = self.members[number].condition().await.context("it does not answer")?.id;
        self.kill(number)?;
        std::fs::remove_dir_all(self.dir.path().join(&self.members[number].name))?;
        self.wait_for_leader_other_than(number).await?;
        let is_lost = |member: &Value| member["ID"].as_str() == Some(&lost);
        self.change_members("remove", &json!({"ID": lost}), |members| !members.iter().any(is_lost)).await?;
        let peer = peer_url(&self.members[number].host);
        let is_new = |member: &Value| member["peerURLs"][0].as_str() == Some(&peer);
        self.change_members("add", &json!({"peerURLs": [peer]}), |members| members.iter().any(is_new)).await?;
        self.members[number].name.push('x');
        self.spawn(number, "existing")
    }

    /// Asks whoever leads until the change can be seen: right after an election a leader refuses, and an answer may be lost.
    async fn change_members(&self, what: &str, body: &Value, is_done: impl Fn(&[Value]) -> bool) -> Result<()> {
        eventually_within(patience(), async || {
            let leader = &self.members[self.leader().await?];
            let listed = leader.post("/v3/cluster/member/list", &json!({})).await?;
            if is_done(listed["members"].as_array().context("no members")?) {
                return Ok(());
            }
            leader.post(&format!("/v3/cluster/member/{what}"), body).await?;
            bail!("the list does not show it yet")
        })
        .await
    }

    /// Every change of the keys under `prefix` since `from`, that one included, up to `until`: in etcd's own words, not in those
    /// of any client of ours. Key without the prefix, value, revision.
    pub async fn history(&self, prefix: &str, from: u64, until: u64) -> Result<Vec<(String, Option<Vec<u8>>, u64)>> {
        let leader = &self.members[self.leader().await?];
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().context("a prefix is not empty")? += 1;
        let create = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(&end), "start_revision": from.to_string()});
        let call = Call::new(Method::POST, "/v3/watch").json(&json!({"create_request": create}));
        let mut stream = leader.client.open(call).await?;
        let mut changes = Vec::new();
        loop {
            let answer = stream.event().await?.context("etcd ended the watch")?;
            let result = &answer["result"];
            ensure!(result["canceled"] != true, "etcd refuses: {answer}");
            for event in result["events"].as_array().into_iter().flatten() {
                let kv = &event["kv"];
                let text = |name: &str| STANDARD.decode(kv[name].as_str().unwrap_or_default());
                let key = String::from_utf8(text("key")?)?;
                let key = key.strip_prefix(prefix).context("a key that was not asked for")?.to_owned();
                let value = if event["type"] == "DELETE" { None } else { Some(text("value")?) };
                changes.push((key, value, number(&kv["mod_revision"])?));
            }
            if changes.last().is_some_and(|(_, _, revision)| *revision >= until) {
                return Ok(changes);
            }
        }
    }
}

impl Member {
    /// Not for as long as anybody may wait: who asks again must have time to.
    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = tokio::time::timeout(patience() / 4, self.client.post(path, body)).await;
        let answer = answer.with_context(|| format!("{path} is not answered"))??;
        answer.ok().with_context(|| path.to_owned())
    }

    async fn condition(&self) -> Option<Condition> {
        let answer = tokio::time::timeout(ANSWER, self.client.post("/v3/maintenance/status", &json!({}))).await;
        let status = answer.ok()?.ok()?.ok().ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Condition {
            id: text(&status["header"]["member_id"])?,
            leader: text(&status["leader"])?,
            applied: number(&status["raftAppliedIndex"]).ok()?,
        })
    }
}

fn client_url(host: &Host) -> String {
    format!("http://{}:2379", host.address)
}

fn peer_url(host: &Host) -> String {
    format!("http://{}:2380", host.address)
}

/// Numbers of 64 bits are text in etcd's JSON.
fn number(value: &Value) -> Result<u64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("{value} is not a number"))
}

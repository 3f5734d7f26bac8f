//! Three etcd members on a network of their own, lost, frozen and cut off from each other while clients write, read, list and
//! watch through two servers: nothing acknowledged is lost, nothing is done twice, and every answer fits in one order.
//!
//! `CROFT_FAULTS_SEED` chooses what the clients do, `CROFT_FAULTS_ROUNDS` how often the faults are gone through.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use croft_e2e::witness::{self, MAPS, Rng, Witnesses};
use croft_testkit::history::Change;
use croft_testkit::{Croft, EtcdCluster, Lan, Lost, ServerKind};
use serde_json::{Value, json};

const MEMBERS: usize = 3;
/// Where etcd has the objects that the witnesses write.
const STORED: &str = "/croft/registry/core/configmaps/default/";
/// Acknowledged by each server before, during and after each fault.
const WRITES: usize = 15;
/// What a client waits for an answer at the most, whatever etcd does: two waits for etcd, and some for a busy machine.
const LONGEST: Duration = Duration::from_secs(25);
/// What a write waits at the most when there is no majority.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The leader is killed and starts again.
    KillLeader,
    FreezeLeader,
    FreezeFollower,
    MoveLeader,
    /// The leader does not reach the others any more, or is not reached by them.
    CutLeader(Lost),
    /// The leader's wire is pulled: nobody reaches it.
    UnplugLeader,
    /// The first server does not reach these members any more.
    CutServer(&'static [usize]),
    /// A member is lost with its data, and replaced.
    Replace,
    /// Two of three are killed: there is no majority until they are back.
    LoseMajority,
    SlowDown,
}

struct Bed {
    etcd: EtcdCluster,
    servers: Vec<Croft>,
    rng: Rng,
}

impl Bed {
    async fn start(lan: &Lan, seed: u64) -> Result<Self> {
        let (members, servers) = lan.hosts().split_at(MEMBERS);
        let etcd = EtcdCluster::start(members).await?;
        let first = Croft::start_on(&servers[0], &etcd.endpoints(), None).await?;
        let second = Croft::start_on(&servers[1], &etcd.endpoints(), Some(&first)).await?;
        Ok(Self { etcd, servers: vec![first, second], rng: Rng::new(seed) })
    }

    async fn follower(&mut self) -> Result<usize> {
        let leader = self.etcd.leader().await?;
        let step = 1 + usize::try_from(self.rng.below(MEMBERS as u64 - 1))?;
        Ok((leader + step) % MEMBERS)
    }

    /// Has the fault happen, sees that writes go on all the same, and puts things right again.
    async fn suffer(&mut self, lan: &Lan, fault: Fault, witnesses: &Witnesses) -> Result<()> {
        let leader = self.etcd.leader().await?;
        match fault {
            Fault::KillLeader => {
                self.etcd.kill(leader)?;
                self.etcd.wait_for_leader_other_than(leader).await?;
                witnesses.progress(WRITES).await?;
                self.etcd.start_again(leader)?;
            }
            Fault::FreezeLeader | Fault::FreezeFollower => {
                let frozen = if let Fault::FreezeLeader = fault { leader } else { self.follower().await? };
                self.etcd.freeze(frozen)?;
                witnesses.progress(WRITES).await?;
                self.etcd.thaw(frozen)?;
            }
            Fault::MoveLeader => {
                for _ in 0..MEMBERS {
                    let next = self.follower().await?;
                    self.etcd.move_leader(next).await?;
                    witnesses.progress(WRITES / 3).await?;
                }
            }
            Fault::CutLeader(lost) => {
                self.etcd.host(leader).cut_from(&self.etcd.others(leader), lost)?;
                self.etcd.wait_for_leader_other_than(leader).await?;
                witnesses.progress(WRITES).await?;
                self.etcd.host(leader).mend()?;
            }
            Fault::UnplugLeader => {
                self.etcd.host(leader).unplug()?;
                self.etcd.wait_for_leader_other_than(leader).await?;
                witnesses.progress(WRITES).await?;
                self.etcd.host(leader).mend()?;
            }
            Fault::CutServer(members) => {
                let server = &lan.hosts()[MEMBERS];
                let members: Vec<_> = members.iter().map(|number| self.etcd.host(*number)).collect();
                server.cut_from(&members, Lost::Both)?;
                witnesses.progress(WRITES).await?;
                server.mend()?;
            }
            Fault::Replace => {
                let lost = self.follower().await?;
                self.etcd.replace(lost).await?;
            }
            Fault::LoseMajority => {
                let other = self.follower().await?;
                for number in [leader, other] {
                    self.etcd.kill(number)?;
                }
                self.is_refused().await?;
                for number in [leader, other] {
                    self.etcd.start_again(number)?;
                }
            }
            Fault::SlowDown => {
                let slow = self.follower().await?;
                if !self.etcd.host(slow).slow_down(200)? {
                    eprintln!("this kernel cannot slow a link down (no netem): left out");
                    return Ok(());
                }
                witnesses.progress(WRITES).await?;
                self.etcd.host(slow).speed_up()?;
            }
        }
        self.etcd.wait_whole().await
    }

    /// Without a majority, reads and writes are refused in good time, by each server.
    async fn is_refused(&self) -> Result<()> {
        let asked = self.servers.iter().enumerate().map(async |(number, server)| {
            let client = server.client()?;
            let started = Instant::now();
            let body = json!({"metadata": {"name": format!("never-{number}")}});
            let (written, read) = tokio::join!(client.post(MAPS, &body), client.get(MAPS));
            let took = started.elapsed();
            for answer in [written?, read?] {
                ensure!(answer.status == 503, "{} {}", answer.status, answer.text());
            }
            ensure!(took < REFUSED_WITHIN, "it took {took:?} to refuse");
            // What it has already can be had by those who take it as it is.
            client.get(&format!("{MAPS}?resourceVersion=0")).await?.ok()
        });
        futures::future::try_join_all(asked).await.map(drop)
    }
}

/// Everything that happened, as etcd has it. It is read piece by piece: the servers have etcd forget what is some minutes old.
struct Truth {
    changes: Vec<Change>,
    /// Up to here.
    read: u64,
}

impl Truth {
    /// What is new, at least up to a change that is known of or sure to come.
    async fn read(&mut self, etcd: &EtcdCluster, until: u64) -> Result<()> {
        if until <= self.read {
            return Ok(());
        }
        for (key, value, revision) in etcd.history(STORED, self.read + 1, until).await? {
            self.read = revision;
            if !witness::is_ours(&key) {
                continue;
            }
            let value = value.map(|bytes| witness::value(&serde_json::from_slice::<Value>(&bytes)?)).transpose()?;
            self.changes.push(Change { key, value, revision });
        }
        Ok(())
    }
}

async fn go_through(lan: &Lan, faults: &[Fault]) -> Result<()> {
    let seed = witness::seed();
    let mut bed = Bed::start(lan, seed).await?;
    let endpoints: Vec<_> = bed.servers.iter().map(|server| &**server).collect();
    let witnesses = Witnesses::start(seed, &endpoints).await?;
    let mut truth = Truth { changes: Vec::new(), read: witnesses.from() };
    for _ in 0..witness::rounds() {
        for fault in faults {
            let started = Instant::now();
            witnesses.next_round();
            witnesses.progress(WRITES).await.with_context(|| format!("before {fault:?}"))?;
            bed.suffer(lan, *fault, &witnesses).await.with_context(|| format!("{fault:?}"))?;
            witnesses.progress(WRITES).await.with_context(|| format!("after {fault:?}"))?;
            // They write on: something comes that is newer.
            truth.read(&bed.etcd, witnesses.newest().await?).await.with_context(|| format!("after {fault:?}"))?;
            eprintln!("{fault:?}: {:.1} s", started.elapsed().as_secs_f64());
        }
    }
    let mut testimony = witnesses.finish().await?;
    truth.read(&bed.etcd, testimony.until).await?;
    testimony.history.truth = truth.changes;
    ensure!(testimony.complaints.is_empty(), "{:#?}", testimony.complaints);
    let figures = testimony.history.check().map_err(|wrong| anyhow::anyhow!("{wrong:#?}"))?;
    eprintln!("{figures:?}, the slowest took {:?}", testimony.slowest);
    ensure!(testimony.slowest < LONGEST, "an answer took {:?}", testimony.slowest);
    Ok(())
}

fn run(faults: &[Fault]) {
    if !ServerKind::Etcd.wanted() {
        return;
    }
    let lan = Lan::new(MEMBERS + 2).expect("a network can be made");
    if let Err(err) = lan.block_on(async || go_through(&lan, faults).await) {
        panic!("{err:?}");
    }
}

#[test]
fn members_that_die_freeze_or_are_replaced_take_nothing_with_them() {
    run(&[
        Fault::KillLeader,
        Fault::FreezeLeader,
        Fault::FreezeFollower,
        Fault::MoveLeader,
        Fault::Replace,
        Fault::LoseMajority,
    ]);
}

#[test]
fn networks_that_fall_apart_take_nothing_with_them() {
    run(&[
        Fault::CutLeader(Lost::Both),
        Fault::CutLeader(Lost::Incoming),
        Fault::CutLeader(Lost::Outgoing),
        Fault::UnplugLeader,
        Fault::CutServer(&[0, 1]),
        Fault::CutServer(&[2]),
        Fault::SlowDown,
    ]);
}

//! What members of etcd are asked beside our keys: how they are, whether they agree, and to give back space.

use std::collections::BTreeSet;
use std::time::Duration;

use croft_meta::Revision;
use tonic::{Response, Status as Answer};

use super::client::Repeat;
use super::proto::kv_client::KvClient;
use super::proto::maintenance_client::MaintenanceClient;
use super::proto::request_op::Request as RawOp;
use super::proto::{self, StatusResponse};
use super::{Etcd, errors, gate};
use crate::status::{Member, Status};
use crate::{Error, History, LeaseId, Result, Store};

/// A member does nothing else while it writes its file anew.
const DEFRAGMENT_TIMEOUT: Duration = Duration::from_mins(10);
const HASH_TIMEOUT: Duration = Duration::from_mins(2);
/// Who dies at it is in the way for this long.
const LOCK: Duration = Duration::from_mins(1);
const RENEWAL: Duration = Duration::from_secs(20);
/// As etcd counts them.
const DEACTIVATE: i32 = 2;
const NO_SPACE: i32 = 1;
const CORRUPT: i32 = 2;

/// What was last heard of the members.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    pub(super) size_bytes: u64,
    pub(super) in_use_bytes: u64,
    pub(super) alarms: Vec<String>,
    pub(super) read_only: Option<String>,
}

impl Etcd {
    pub(super) async fn ask_status(&self) -> Result<Status> {
        let (newest, oldest) = (self.newest().await?, self.oldest().await?);
        let statuses = self.client.statuses().await;
        let alarms = self.alarms().await;
        let members: Vec<Member> =
            self.endpoints.iter().zip(statuses).map(|(endpoint, status)| member(endpoint, status, &alarms)).collect();
        let largest = |of: fn(&Member) -> u64| members.iter().map(of).max().unwrap_or_default();
        let heard = Heard {
            size_bytes: largest(|member| member.size_bytes),
            in_use_bytes: largest(|member| member.in_use_bytes),
            alarms: alarms.iter().map(|alarm| alarm_name(alarm.alarm).to_owned()).collect(),
            read_only: alarms.first().map(|alarm| alarm_words(alarm.alarm)),
        };
        *self.heard.lock() = heard.clone();
        Ok(Status {
            engine: "etcd".to_owned(),
            revision: newest.0,
            compacted_revision: oldest.max(self.keys.base()).0,
            last_compaction: self.last_compaction.lock().clone(),
            size_bytes: heard.size_bytes,
            in_use_bytes: heard.in_use_bytes,
            reclaimable_bytes: largest(Member::reclaimable_bytes),
            read_only: heard.read_only,
            is_damaged: alarms.iter().any(|alarm| alarm.alarm == CORRUPT),
            alarms: heard.alarms,
            members,
        })
    }

    /// None where we are not allowed to ask.
    async fn alarms(&self) -> Vec<proto::AlarmMember> {
        let ask = |channel, request| async move { MaintenanceClient::new(channel).alarm(request).await };
        let answer = self.client.call(proto::AlarmRequest::default(), Repeat::Safe, ask).await;
        answer.map(|answer| answer.alarms).unwrap_or_default()
    }

    /// One member after the other, the leader last, and only while all others are well. Then writes are taken again, if etcd
    /// refused them because it was full.
    pub(super) async fn defragment_members(&self, history: History) -> Result<()> {
        let busy = || Error::Unavailable { reason: "another server has etcd defragmented at this moment".to_owned() };
        let _turn = self.defragmenting.try_lock().map_err(|_| busy())?;
        let alarms = self.alarms().await;
        if alarms.iter().any(|alarm| alarm.alarm == CORRUPT) {
            return Err(Error::ReadOnly { reason: alarm_words(CORRUPT) });
        }
        let is_full = alarms.iter().any(|alarm| alarm.alarm == NO_SPACE);
        let lock = match self.lock_maintenance().await {
            Ok(lock) => Some(lock.ok_or_else(busy)?),
            // An etcd that is full takes no lock. Nor does it take writes, which two of us could hold up.
            Err(Error::ReadOnly { .. }) if is_full => None,
            Err(error) => return Err(error),
        };
        let work = async {
            if history == History::Forgotten {
                self.forget().await?;
            }
            self.defragment_each().await
        };
        let done = tokio::select! {
            done = work => done,
            lost = self.keep_locked(lock) => Err(lost),
        };
        if let Some(lock) = lock {
            // It ends by itself otherwise.
            let _ = self.lease_revoke(lock).await;
        }
        done?;
        if is_full { self.disarm(&alarms).await } else { Ok(()) }
    }

    /// As long as it is not lost, which nobody goes on after.
    async fn keep_locked(&self, lock: Option<LeaseId>) -> Error {
        let Some(lock) = lock else { return std::future::pending().await };
        loop {
            tokio::time::sleep(RENEWAL).await;
            match self.lease_keep_alive(lock).await {
                // A member that is busy keeps us waiting; the lock lives for longer than that.
                Ok(_) | Err(Error::Unavailable { .. }) => {}
                Err(error) => return error,
            }
        }
    }

    /// All history, and waits until its space is free.
    async fn forget(&self) -> Result<()> {
        let newest = self.newest().await?;
        let revision = self.keys.raw(newest);
        let (_, channel) = self.client.member();
        let request = self.client.request(proto::CompactionRequest { revision, physical: true });
        let answer = tokio::time::timeout(DEFRAGMENT_TIMEOUT, KvClient::new(channel).compact(request)).await;
        match answer.unwrap_or_else(|_| Err(Answer::deadline_exceeded("it takes too long"))) {
            Ok(_) => self.has_compacted(newest),
            Err(status) if errors::is_compacted(&status) => {}
            Err(status) => return Err(errors::error(&status)),
        }
        Ok(())
    }

    async fn defragment_each(&self) -> Result<()> {
        let mut done = BTreeSet::new();
        loop {
            let statuses = self.well_members().await?;
            // Several addresses may lead to one member.
            let left = statuses.iter().enumerate().filter(|(_, status)| !done.contains(&member_id(status)));
            let Some((at, status)) = left.min_by_key(|(_, status)| status.leader == member_id(status)) else {
                return Ok(());
            };
            let before = status.db_size;
            let mut client = MaintenanceClient::new(self.client.channels()[at].clone());
            let request = self.client.request(proto::DefragmentRequest {});
            let answer = tokio::time::timeout(DEFRAGMENT_TIMEOUT, client.defragment(request)).await;
            let answer = answer.unwrap_or_else(|_| Err(Answer::deadline_exceeded("it takes too long")));
            answer.map(Response::into_inner).map_err(|status| errors::error(&status))?;
            done.insert(member_id(status));
            tracing::info!(member = self.endpoints[at], before_bytes = before, "etcd member defragmented");
        }
    }

    /// etcd refuses writes until it is told that there is room again, and complains anew if there is none.
    async fn disarm(&self, alarms: &[proto::AlarmMember]) -> Result<()> {
        for alarm in alarms.iter().filter(|alarm| alarm.alarm == NO_SPACE) {
            let request = proto::AlarmRequest { action: DEACTIVATE, member_id: alarm.member_id, alarm: alarm.alarm };
            let tell = |channel, request| async move { MaintenanceClient::new(channel).alarm(request).await };
            let told = self.client.call(request, Repeat::Safe, tell).await;
            told.map_err(|status| errors::error(&status))?;
        }
        // The first write shows whether it is so.
        match self.lock_maintenance().await {
            Ok(Some(lock)) => self.lease_revoke(lock).await,
            Ok(None) => Ok(()),
            Err(Error::ReadOnly { .. }) => Err(Error::ReadOnly {
                reason: "etcd was defragmented and is still full: what is in it needs more than its quota; delete objects, or \
                         start its members with a larger --quota-backend-bytes"
                    .to_owned(),
            }),
            Err(error) => Err(error),
        }
    }

    /// While one of them is busy, the others must do without it.
    async fn well_members(&self) -> Result<Vec<StatusResponse>> {
        let statuses = self.client.statuses().await;
        let is_well = |(endpoint, status): (&String, Option<StatusResponse>)| {
            let ill = |why: &str| Error::Unavailable {
                reason: format!("{endpoint} {why}, and no other member is to be kept busy meanwhile"),
            };
            let status = status.ok_or_else(|| ill("does not answer"))?;
            if status.leader == 0 {
                return Err(ill("knows no leader"));
            }
            Ok(status)
        };
        self.endpoints.iter().zip(statuses).map(is_well).collect()
    }

    /// Of all servers on this etcd one is at it: `None` if that is another.
    async fn lock_maintenance(&self) -> Result<Option<LeaseId>> {
        let lease = self.lease_grant(LOCK).await?;
        let key = self.keys.maintenance_key();
        let put = proto::PutRequest { key: key.clone(), value: Vec::new(), lease: lease.0 };
        let request = proto::TxnRequest {
            compare: vec![gate::is_at(key, 0)],
            success: vec![proto::RequestOp { request: Some(RawOp::RequestPut(put)) }],
            failure: Vec::new(),
        };
        let answer = self.kv(request, Repeat::IfUnsent, |mut kv, request| async move { kv.txn(request).await }).await;
        if let Ok(answer) = &answer
            && answer.succeeded
        {
            return Ok(Some(lease));
        }
        // It ends by itself otherwise.
        let _ = self.lease_revoke(lease).await;
        answer.map(|_| None).map_err(|status| errors::error(&status))
    }

    /// What members say of themselves, and whether all of them hold the same.
    pub(super) async fn compare_members(&self) -> Result<Vec<String>> {
        let status = self.ask_status().await?;
        let mut problems: Vec<String> = Vec::new();
        for member in &status.members {
            problems.extend(member.problems.iter().map(|problem| format!("{}: {problem}", member.endpoint)));
        }
        let revision = self.keys.raw(Revision(status.revision));
        let well = self.client.channels().iter().zip(&status.members).filter(|(_, member)| !member.id.is_empty());
        let ask = well.map(|(channel, member)| async move {
            let mut client = MaintenanceClient::new(channel.clone());
            let request = self.client.request(proto::HashKvRequest { revision });
            let answer = tokio::time::timeout(HASH_TIMEOUT, client.hash_kv(request)).await;
            let answer = answer.unwrap_or_else(|_| Err(Answer::deadline_exceeded("it takes too long")));
            answer.map(|answer| (&member.endpoint, answer.into_inner())).map_err(|status| errors::error(&status))
        });
        let sums = futures::future::try_join_all(ask).await?;
        if let Some((first, expected)) = sums.first() {
            // Only what was compacted alike can be compared.
            let others = sums
                .iter()
                .filter(|(_, sum)| sum.compact_revision == expected.compact_revision && sum.hash != expected.hash);
            problems.extend(others.map(|(other, _)| {
                format!("{other} does not hold the same as {first}: one of them is damaged; replace the member that is")
            }));
        }
        Ok(problems)
    }
}

fn member(endpoint: &str, status: Option<StatusResponse>, alarms: &[proto::AlarmMember]) -> Member {
    let endpoint = endpoint.to_owned();
    let Some(status) = status else {
        return Member { endpoint, problems: vec!["it does not answer".to_owned()], ..Member::default() };
    };
    let id = member_id(&status);
    let own = alarms.iter().filter(|alarm| alarm.member_id == id);
    // What it says of alarms is told in our words.
    let mut problems: Vec<String> =
        status.errors.into_iter().filter(|error| !error.contains("alarm:") && !error.contains("memberID:")).collect();
    problems.extend(own.map(|alarm| alarm_words(alarm.alarm)));
    Member {
        endpoint,
        id: format!("{id:x}"),
        version: status.version,
        is_leader: id != 0 && status.leader == id,
        size_bytes: bytes(status.db_size),
        in_use_bytes: bytes(status.db_size_in_use),
        problems,
    }
}

fn member_id(status: &StatusResponse) -> u64 {
    status.header.map_or(0, |header| header.member_id)
}

fn bytes(raw: i64) -> u64 {
    u64::try_from(raw).unwrap_or_default()
}

fn alarm_name(alarm: i32) -> &'static str {
    match alarm {
        NO_SPACE => "NOSPACE",
        CORRUPT => "CORRUPT",
        _ => "UNKNOWN",
    }
}

fn alarm_words(alarm: i32) -> String {
    match alarm {
        NO_SPACE => {
            "NOSPACE: its quota is used up, and it refuses writes; \"croft store defrag --compact\" compacts and defragments it, and \
             disarms the alarm"
        }
        CORRUPT => "CORRUPT: members do not hold the same; replace the one that is damaged, then disarm the alarm",
        _ => "an alarm that is not known here",
    }
    .to_owned()
}

//! A gate beside our keys: while it is shut nobody writes, and nobody who is not moving them opens the store.
//!
//! Every transaction has the condition that there is no gate, so that the moment at which it shuts is the same for all servers
//! of the cluster, whether they know of it or not. And the base: what is added to etcd's revisions, so that they go on from
//! those of the store that the objects came from. That it is the one that was read is a condition too: whoever has been open
//! since before a move out of etcd and back counts from another.

use croft_meta::Revision;
use serde::{Deserialize, Serialize};

use super::client::Repeat;
use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::request_op::Request as RawOp;
use super::proto::response_op::Response as RawAnswer;
use super::{Etcd, errors, proto};
use crate::{Error, Result};

const RECOUNTED: &str = "the objects of this etcd were moved away and back, or restored, since this server was started, and their \
                         revisions are counted anew; restart this server";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Passage {
    /// Objects are being moved here; not all of them are here.
    Arriving,
    /// A saved state is being restored here; not all of it is here.
    Restoring,
    /// Objects are being moved away; all of them are here.
    Leaving,
    /// Objects were moved away; what is here is of the past.
    Left,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    pub passage: Passage,
    /// Of the move.
    pub id: String,
    /// The store at the other end.
    pub other: String,
    pub when: String,
}

impl Gate {
    /// Why nobody may go through.
    pub fn words(&self) -> String {
        let Self { other, when, .. } = self;
        match self.passage {
            Passage::Arriving => format!(
                "objects are being moved here from {other} since {when}, and not all of them are here; give the same \"croft \
                 migrate-store\" again, or with --abort"
            ),
            Passage::Restoring => format!(
                "a saved state is being restored here for {other} since {when}, and not all of it is here; give the same \"croft \
                 state restore\" again"
            ),
            Passage::Leaving => format!(
                "its objects are being moved to {other} since {when}; give the same \"croft migrate-store\" again, or with --abort"
            ),
            Passage::Left => format!("its objects were moved to {other} at {when}; use that one"),
        }
    }

    /// Fails if other objects come, for who follows those that were here.
    fn refuse_filling(&self) -> Result<()> {
        match self.passage {
            Passage::Arriving | Passage::Restoring => Err(Error::Engine {
                context: "this etcd is filled anew, and must not be followed meanwhile".to_owned(),
                source: self.words().into(),
            }),
            Passage::Leaving | Passage::Left => Ok(()),
        }
    }
}

impl Etcd {
    /// What the gate says, if there is one, and the version that [`Self::set_gate`] wants to know of.
    pub async fn gate(&self) -> Result<Option<(Gate, i64)>> {
        let request = proto::RangeRequest { key: self.keys.gate_key(), ..Default::default() };
        let response = self.raw_range(request).await.map_err(|status| errors::error(&status))?;
        let Some(kv) = response.kvs.into_iter().next() else { return Ok(None) };
        Ok(Some((parse(&kv.value)?, kv.mod_revision)))
    }

    /// Puts another in the place of the one that was seen, or takes it away. Returns the version of the new one, or `None` if it is
    /// another by now.
    pub async fn set_gate(&self, seen: Option<i64>, gate: Option<&Gate>) -> Result<Option<i64>> {
        let key = self.keys.gate_key();
        let op = match gate {
            Some(gate) => {
                let value = serde_json::to_vec(gate).map_err(|error| invalid(&error))?;
                RawOp::RequestPut(proto::PutRequest { key, value, lease: 0 })
            }
            None => RawOp::RequestDeleteRange(proto::DeleteRangeRequest { key, ..Default::default() }),
        };
        self.change_at_gate(seen, op).await
    }

    /// Deletes all our keys, but neither gate nor base. False if the gate is another than the one that was seen.
    pub async fn clear(&self, seen: Option<i64>) -> Result<bool> {
        let (key, range_end) = self.keys.prefix("");
        let op = RawOp::RequestDeleteRange(proto::DeleteRangeRequest { key, range_end });
        Ok(self.change_at_gate(seen, op).await?.is_some())
    }

    /// For who connects after this, revisions go on from here. False if the gate is another than the one that was seen.
    pub async fn set_base(&self, seen: Option<i64>, base: Revision) -> Result<bool> {
        let put = proto::PutRequest { key: self.keys.base_key(), value: base.to_string().into_bytes(), lease: 0 };
        Ok(self.change_at_gate(seen, RawOp::RequestPut(put)).await?.is_some())
    }

    /// Does something if the gate is the one that was seen, at the revision that is returned. What is late, of a command that was
    /// given up, must do no harm to what came after it.
    async fn change_at_gate(&self, seen: Option<i64>, op: RawOp) -> Result<Option<i64>> {
        let request = proto::TxnRequest {
            compare: vec![is_at(self.keys.gate_key(), seen.unwrap_or(0))],
            success: vec![proto::RequestOp { request: Some(op) }],
            failure: Vec::new(),
        };
        let answer = self.kv(request, Repeat::IfUnsent, |mut kv, request| async move { kv.txn(request).await }).await;
        let answer = answer.map_err(|status| errors::error(&status))?;
        Ok(answer.succeeded.then(|| answer.header.map_or(0, |header| header.revision)))
    }

    /// And when it was set, as etcd counts; 0 if it never was.
    pub(super) async fn stored_base(&self) -> Result<(u64, i64)> {
        let request = proto::RangeRequest { key: self.keys.base_key(), ..Default::default() };
        let response = self.raw_range(request).await.map_err(|status| errors::error(&status))?;
        let Some(kv) = response.kvs.into_iter().next() else { return Ok((0, 0)) };
        let text = String::from_utf8_lossy(&kv.value).into_owned();
        let base = text.parse().map_err(|_| Error::Engine {
            context: "etcd holds a base of revisions that is no number".to_owned(),
            source: text.into(),
        })?;
        Ok((base, kv.mod_revision))
    }

    /// Fails for who has been open since before etcd was filled with other objects, or is at this moment. To be asked after what was
    /// read: then that was not read in between.
    pub(super) async fn refuse_filled(&self) -> Result<()> {
        if !self.minds_gate {
            return Ok(());
        }
        // In this order: the base is set while the gate is shut.
        if let Some((gate, _)) = self.gate().await? {
            gate.refuse_filling()?;
        }
        let (_, base_set) = self.stored_base().await?;
        if base_set == self.base_set { Ok(()) } else { Err(Error::ReadOnly { reason: RECOUNTED.to_owned() }) }
    }

    pub(super) async fn refuse_at_gate(&self) -> Result<()> {
        let Some((gate, _)) = self.gate().await? else { return Ok(()) };
        Err(Error::Engine { context: "this etcd is not to be used".to_owned(), source: gate.words().into() })
    }

    /// Two conditions more, and what to tell if it is one of them that does not hold.
    pub(super) fn guard(&self, mut request: proto::TxnRequest) -> proto::TxnRequest {
        if self.minds_gate && !request.success.is_empty() {
            for (key, mod_revision) in [(self.keys.gate_key(), 0), (self.keys.base_key(), self.base_set)] {
                request.compare.push(is_at(key.clone(), mod_revision));
                let look = proto::RangeRequest { key, ..Default::default() };
                request.failure.push(proto::RequestOp { request: Some(RawOp::RequestRange(look)) });
            }
        }
        request
    }

    /// Whether a transaction that failed did so because of the gate or the base.
    pub(super) fn stopped_by_gate(&self, response: &proto::TxnResponse) -> Option<Error> {
        let mut looks = response.responses.iter().map(|response| {
            let RawAnswer::ResponseRange(range) = response.response.as_ref()?;
            range.kvs.first()
        });
        let (gate, base) = (looks.next()?, looks.next()?);
        if let Some(gate) = gate.map(|kv| parse(&kv.value)) {
            return Some(gate.map_or_else(|error| error, |gate| Error::ReadOnly { reason: gate.words() }));
        }
        let is_same = base.map_or(0, |kv| kv.mod_revision) == self.base_set;
        (!is_same).then(|| Error::ReadOnly { reason: RECOUNTED.to_owned() })
    }
}

pub(super) fn is_at(key: Vec<u8>, mod_revision: i64) -> proto::Compare {
    proto::Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Mod as i32,
        key,
        target_union: Some(TargetUnion::ModRevision(mod_revision)),
    }
}

/// The same of what the key of the gate has now, which may be nothing.
pub(super) fn refuse_filling(value: &[u8]) -> Result<()> {
    if value.is_empty() { Ok(()) } else { parse(value)?.refuse_filling() }
}

fn parse(value: &[u8]) -> Result<Gate> {
    serde_json::from_slice(value).map_err(|error| invalid(&error))
}

fn invalid(error: &serde_json::Error) -> Error {
    Error::Engine { context: "the gate in etcd cannot be understood".to_owned(), source: error.to_string().into() }
}

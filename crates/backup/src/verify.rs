//! Reading every block of a backup back, to know today what a restore would find.

use std::collections::BTreeMap;

use futures::future::join_all;
use parking_lot::Mutex;

use crate::codec::BlockError;
use crate::config::BlockMapping;
use crate::error::Error;
use crate::layout::Checksum;
use crate::read::OpenBackup;
use crate::transfer::{Run, Transfer, on_thread};

/// So many are named; the rest are counted.
const MOST_NAMED: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    Missing,
    Truncated,
    Corrupted,
}

/// A block that a restore would fail on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlock {
    pub checksum: Checksum,
    /// The first place where the disk has it.
    pub offset: u64,
    pub damage: Damage,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Different ones: the same block in many places is read once.
    pub blocks: u64,
    pub bad: u64,
    /// By their offsets, if they are not too many.
    pub named: Vec<BadBlock>,
}

impl Verified {
    pub fn is_sound(&self) -> bool {
        self.bad == 0
    }
}

impl OpenBackup {
    /// An error is a target that could not be asked; what is wrong with the blocks is in the result.
    pub async fn verify(&self, transfer: &Transfer) -> Result<Verified, Error> {
        let mut blocks = self.blocks.to_vec();
        blocks.sort_unstable_by_key(|block| (block.block_checksum, block.offset));
        blocks.dedup_by_key(|block| block.block_checksum);
        let run = Run::new(transfer, blocks.len() as u64 * self.block_size);
        run.add(0, 0);
        let (named, bad) = (Mutex::new(BTreeMap::new()), Mutex::new(0));
        let (run_ref, named_ref, bad_ref) = (&run, &named, &bad);
        let count = blocks.len() as u64;
        run.each(&blocks, self.block_size, |blocks| async move {
            let (mut stored, mut received) = (Vec::with_capacity(blocks.len()), 0);
            let tell = |block: BlockMapping, damage| {
                *bad_ref.lock() += 1;
                let mut named = named_ref.lock();
                if named.len() < MOST_NAMED {
                    let BlockMapping { offset, block_checksum: checksum } = block;
                    named.insert(offset, BadBlock { checksum, offset, damage });
                }
            };
            let asked = blocks.iter().copied().map(|block| self.stored(block));
            for (block, answer) in blocks.iter().zip(join_all(asked).await) {
                match answer {
                    Err(Error::MissingBlock { .. }) => tell(*block, Damage::Missing),
                    // Nothing that we wrote is so large.
                    Err(Error::Target(error)) if error.fault == crate::target::Fault::TooLarge => {
                        tell(*block, Damage::Corrupted);
                    }
                    Err(error) => return Err(error),
                    Ok(data) => {
                        received += data.len();
                        stored.push((*block, (block.block_checksum, data)));
                    }
                }
            }
            run_ref.pace.take(received).await;
            let (codec, limit) = (self.codec.clone(), self.block_size);
            let (readable, stored): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
            let unpacked = on_thread(move || Ok(codec.unpack(&stored, limit))).await?;
            for (block, unpacked) in readable.into_iter().zip(unpacked) {
                if let Err(error) = unpacked {
                    tell(block, damage(&error));
                }
            }
            run_ref.add(blocks.len() as u64 * self.block_size, received);
            Ok(())
        })
        .await?;
        Ok(Verified { blocks: count, bad: bad.into_inner(), named: named.into_inner().into_values().collect() })
    }
}

fn damage(error: &BlockError) -> Damage {
    match error {
        BlockError::Truncated => Damage::Truncated,
        BlockError::Corrupted | BlockError::Sealed(_) => Damage::Corrupted,
    }
}

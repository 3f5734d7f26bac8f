//! Reading every block of a backup back, to know today what a restore would find.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::codec::BlockError;
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
        run.each(blocks, self.block_size, |block| async move {
            let (received, damage) = match self.stored(&block).await {
                Err(Error::MissingBlock { .. }) => (0, Some(Damage::Missing)),
                // Nothing that we wrote is so large.
                Err(Error::Target(error)) if error.fault == crate::target::Fault::TooLarge => {
                    (0, Some(Damage::Corrupted))
                }
                Err(error) => return Err(error),
                Ok(stored) => {
                    let (codec, limit, received) = (self.codec.clone(), self.block_size, stored.len());
                    run_ref.pace.take(received).await;
                    let unpacked = on_thread(move || Ok(codec.unpack(&block.block_checksum, &stored, limit).map(drop)));
                    (received, unpacked.await?.err().map(|error| damage(&error)))
                }
            };
            if let Some(damage) = damage {
                *bad_ref.lock() += 1;
                let mut named = named_ref.lock();
                if named.len() < MOST_NAMED {
                    named.insert(
                        block.offset,
                        BadBlock { checksum: block.block_checksum, offset: block.offset, damage },
                    );
                }
            }
            run_ref.add(self.block_size, received);
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

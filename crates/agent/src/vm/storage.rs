//! This node's volumes, as machines ask for them.

use std::path::PathBuf;

use croft_meta::Chain;
use croft_reconcile::Key;
use tokio::sync::watch;

use super::host::{Attached, Lacking, Storage};
use crate::volume::{AttachError, Volumes};

impl Storage for Volumes {
    fn attach(&self, namespace: &str, claim: &str) -> Result<Attached, Lacking> {
        let attached = Volumes::attach(self, namespace, claim).map_err(|error| {
            let message = Chain(&error).to_string();
            match error {
                AttachError::NotYet | AttachError::NotBound(_) => Lacking::Yet { reason: "VolumeNotBound", message },
                // A claim may be made after its machine.
                AttachError::NotFound(_) | AttachError::Deleted(_) => {
                    Lacking::Yet { reason: "FailedPvcNotFound", message }
                }
                _ => Lacking::Ever { message },
            }
        })?;
        if attached.is_being_filled {
            let message = format!("claim {namespace}/{claim} is still being filled");
            return Err(Lacking::Yet { reason: "VolumeNotFilled", message });
        }
        Ok(Attached {
            path: attached.path,
            size_bytes: attached.size_bytes,
            is_block: attached.is_block,
            is_read_only: attached.is_read_only,
            claim: attached.claim_info,
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        Volumes::changes(self)
    }

    fn scratch(&self) -> PathBuf {
        self.pool_for_scratch().join("scratch")
    }

    fn state(&self) -> PathBuf {
        self.pool_for_scratch().join("state")
    }

    fn memory(&self, namespace: &str, snapshot: &str) -> Result<PathBuf, Lacking> {
        let found = self.memory_file(&Key::new(namespace, snapshot));
        found.map_err(|message| Lacking::Yet { reason: "MemoryNotFound", message })
    }
}

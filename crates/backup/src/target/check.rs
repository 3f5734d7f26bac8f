//! Whether a target works, before anything is entrusted to it.

use bytes::Bytes;

use crate::target::{Fault, Target, TargetError, unfinished_name};

/// Lists, writes, reads back and deletes, so that a target that lacks a right is found out when it is set and not at night.
pub async fn check(target: &dyn Target) -> Result<(), TargetError> {
    target.list("").await?;
    let name = unfinished_name("croft-check")
        .map_err(|error| TargetError::new(Fault::Server, "check", "").because(error.to_string()))?;
    let written = Bytes::from_static(b"croft looks whether backups can be kept here");
    target.put(&name, written.clone()).await?;
    let read = target.get(&name, 4096).await;
    // Deleted even if it cannot be read, so that nothing is left behind.
    target.delete(&name).await?;
    if read? != written {
        return Err(TargetError::new(Fault::Server, "read back", &name).because("it gave back something else"));
    }
    if target.stat(&name).await?.is_some() {
        return Err(TargetError::new(Fault::Server, "delete", &name).because("it is still there"));
    }
    Ok(())
}

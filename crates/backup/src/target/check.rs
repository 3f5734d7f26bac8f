//! Whether a target works, before anything is entrusted to it.

use bytes::Bytes;
use jiff::SignedDuration;

use crate::target::{Fault, Target, TargetError, UNFINISHED, unfinished_name};

const PROBE: &str = "croft-check";
/// Nobody looks for so long: whose file is older has died over it.
const LONGEST: SignedDuration = SignedDuration::from_mins(1);

/// Lists, writes, reads back and deletes, so that a target that lacks a right is found out when it is set and not at night.
pub async fn check(target: &dyn Target) -> Result<(), TargetError> {
    let there = target.list("").await?;
    let name = unfinished_name(PROBE)
        .map_err(|error| TargetError::new(Fault::Server, "check", "").because(error.to_string()))?;
    let written = Bytes::from_static(b"croft looks whether backups can be kept here");
    target.put(&name, written.clone()).await?;
    let read = target.get(&name, 4096).await;
    let removed = remove_left(target, &name, &there).await;
    // Deleted even if it cannot be read, so that nothing is left behind.
    target.delete(&name).await?;
    if read? != written {
        return Err(TargetError::new(Fault::Server, "read back", &name).because("it gave back something else"));
    }
    if target.stat(&name).await?.is_some() {
        return Err(TargetError::new(Fault::Server, "delete", &name).because("it is still there"));
    }
    removed
}

/// What is there of those who were killed while they looked. How old it is, is told by what was written just now: clocks differ.
async fn remove_left(target: &dyn Target, own: &str, there: &[String]) -> Result<(), TargetError> {
    let prefix = format!("{PROBE}{UNFINISHED}");
    for name in there.iter().filter(|name| name.starts_with(&prefix)) {
        let (Some(now), Some(left)) = (target.stat(own).await?, target.stat(name).await?) else { continue };
        if now.modified.duration_since(left.modified) > LONGEST {
            target.delete(name).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Directory;

    #[tokio::test]
    async fn what_somebody_left_who_died_while_looking_goes() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["croft-check.tmp.0123456789abcdef", "croft-check.tmp.0.tmp.1", "croft-check.tmp.2", "croft-check"];
        for name in names {
            std::fs::write(dir.path().join(name), "left").unwrap();
        }
        // Those two are long dead, and the third may be at it.
        for name in &names[..2] {
            let file = std::fs::File::options().write(true).open(dir.path().join(name)).unwrap();
            file.set_modified(file.metadata().unwrap().modified().unwrap() - 2 * LONGEST.unsigned_abs()).unwrap();
        }
        check(&Directory::new(dir.path())).await.unwrap();
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort_unstable();
        assert_eq!(left, ["croft-check", "croft-check.tmp.2"]);
    }
}

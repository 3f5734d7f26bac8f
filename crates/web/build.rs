//! Puts the files of `ui/dist` into the program, for releases. Other builds read them from the disk when they are asked for,
//! so that a change to the page needs no build of the server.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(embedded)");
    if env::var("PROFILE")? != "release" {
        return Ok(());
    }
    println!("cargo::rustc-cfg=embedded");
    let dist = fs::canonicalize(env::var("CARGO_MANIFEST_DIR")?)?.join("../../ui/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    if dist.is_dir() {
        collect(&dist, &mut files)?;
    }
    // By their bytes, as they are searched for; paths would be ordered by their parts.
    files.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    let mut table = String::from("&[\n");
    for path in &files {
        let text = path.to_str().ok_or("the name of a file is not text")?;
        let name = path.strip_prefix(&dist)?.to_str().ok_or("the name of a file is not text")?;
        let digest = Sha256::digest(fs::read(path)?);
        let tag = digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        writeln!(table, "    ({name:?}, {tag:?}, include_bytes!({text:?})),")?;
    }
    table.push(']');
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("files.rs"), table)?;
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

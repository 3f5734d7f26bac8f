//! Opens the store that the settings ask for.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use croft_meta::time::format_seconds;
use croft_store::embedded;
use croft_store::sealed::{SealOptions, Sealed};
use croft_store::{Embedded, EmbeddedOptions, Etcd, EtcdOptions, Op, Passage, Store};
use jiff::Timestamp;

use crate::output;
use crate::settings::{EtcdSettings, StoreSettings};

/// With what is secret encrypted on its way in, and opened on its way out.
pub(crate) async fn open(
    settings: &StoreSettings,
    encryption: &SealOptions,
    data_dir: &Path,
) -> anyhow::Result<Arc<dyn Store>> {
    seal(open_engine(settings, data_dir).await?, encryption).await
}

/// As it is, with what is encrypted unopened.
pub(crate) async fn open_engine(settings: &StoreSettings, data_dir: &Path) -> anyhow::Result<Arc<dyn Store>> {
    match settings {
        StoreSettings::Embedded => {
            let dir = data_dir.join("store");
            // Reading the log of what was written last may take a while.
            let opening = tokio::task::spawn_blocking(move || Embedded::open(&dir, EmbeddedOptions::default()));
            let store = opening.await.context("the store's opening was cut short")?;
            Ok(store.with_context(|| format!("cannot open the store in {}", data_dir.display()))?)
        }
        StoreSettings::Etcd(etcd) => {
            finish_move(etcd, &data_dir.join("store")).await?;
            let store = Etcd::connect(options(etcd)).await;
            Ok(store.with_context(|| format!("cannot use etcd at {}", etcd.endpoints.join(", ")))?)
        }
    }
}

/// The same past the gate of etcd, for who fills it.
pub(crate) async fn open_past_gate(etcd: &EtcdSettings, encryption: &SealOptions) -> anyhow::Result<Arc<dyn Store>> {
    let engine: Arc<dyn Store> = connect_past_gate(etcd).await?;
    seal(engine, encryption).await
}

async fn seal(engine: Arc<dyn Store>, encryption: &SealOptions) -> anyhow::Result<Arc<dyn Store>> {
    let opened = Sealed::open(Arc::clone(&engine), encryption.clone(), &format_seconds(Timestamp::now())).await;
    match opened {
        Ok(store) => Ok(store),
        Err(error) => {
            // The error is what counts; the engine lets go of its files in any case.
            let _ = engine.close().await;
            Err(error.into())
        }
    }
}

/// A move into etcd that was cut short after this directory was left lacks only its last step.
async fn finish_move(settings: &EtcdSettings, dir: &Path) -> anyhow::Result<()> {
    let Some(moved) = embedded::moved(dir)? else { return Ok(()) };
    let etcd = connect_past_gate(settings).await?;
    if let Some((gate, seen)) = etcd.gate().await?
        && gate.passage == Passage::Arriving
        && gate.id == moved.id
    {
        etcd.set_gate(Some(seen), None).await?;
    }
    Ok(etcd.close().await?)
}

/// For who moves the objects there or away.
pub(crate) async fn connect_past_gate(settings: &EtcdSettings) -> anyhow::Result<Arc<Etcd>> {
    let connected = Etcd::connect_past_gate(options(settings)).await;
    connected.with_context(|| format!("cannot use etcd at {}", settings.endpoints.join(", ")))
}

/// What to tell when etcd does not take what is written into it from elsewhere: of an object that is too large, which one that is.
pub(crate) fn refused(error: croft_store::Error, ops: &[Op]) -> anyhow::Error {
    let size = |op: &Op| match op {
        Op::Put { key, value, .. } => Some((key.len() + value.len(), key.clone())),
        Op::Delete { .. } => None,
    };
    let largest = ops.iter().filter_map(size).max();
    let words = match (&error, largest) {
        (croft_store::Error::TooLarge { .. }, Some((bytes, key))) => format!(
            "{key} has {}, which is more than this etcd takes at once: start etcd with a larger --max-request-bytes, or make the \
             object smaller where it comes from",
            output::bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
        ),
        _ => "cannot write into etcd".to_owned(),
    };
    anyhow::Error::new(error).context(words)
}

fn options(settings: &EtcdSettings) -> EtcdOptions {
    let client = settings.client.as_ref();
    let login = settings.login.as_ref();
    EtcdOptions {
        endpoints: settings.endpoints.clone(),
        ca: settings.ca_file.clone(),
        cert: client.map(|client| client.cert_file.clone()),
        key: client.map(|client| client.key_file.clone()),
        username: login.map(|login| login.username.clone()),
        password: login.map(|login| login.password.reveal().to_owned()),
        ..EtcdOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn open(settings: &StoreSettings, dir: &Path) -> anyhow::Result<Arc<dyn Store>> {
        let prefixes = vec!["registry/core/secrets/".to_owned()];
        super::open(settings, &SealOptions { key_file: dir.join("key"), prefixes }, dir).await
    }

    #[tokio::test]
    async fn embedded_store_is_in_the_data_directory_and_for_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&StoreSettings::Embedded, dir.path()).await.unwrap();
        store.revision().await.unwrap();
        assert!(dir.path().join("store/store.db").exists());
        let mode = std::fs::metadata(dir.path().join("store")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "Secrets are in there");
        let err = format!("{:#}", open(&StoreSettings::Embedded, dir.path()).await.map(|_| ()).unwrap_err());
        assert!(err.starts_with("cannot open the store in "), "{err}");
        store.close().await.unwrap();
        open(&StoreSettings::Embedded, dir.path()).await.unwrap();
    }

    #[test]
    fn the_object_that_is_too_large_is_named() {
        let put = |key: &str, size| Op::Put { key: key.to_owned(), value: vec![0; size].into(), lease: None };
        let ops = [put("registry/a", 10), put("registry/b", 2 << 20), Op::Delete { key: "registry/c".to_owned() }];
        let told = |error| format!("{:#}", refused(error, &ops));
        let large = told(croft_store::Error::TooLarge { reason: "etcd: request is too large".to_owned() });
        assert!(large.starts_with("registry/b has 2") && large.contains("--max-request-bytes"), "{large}");
        let other = told(croft_store::Error::Unavailable { reason: "it is gone".to_owned() });
        assert!(other.starts_with("cannot write into etcd: ") && !other.contains("registry"), "{other}");
    }

    #[tokio::test]
    async fn absent_etcd_is_named() {
        let settings = EtcdSettings { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..EtcdSettings::default() };
        let dir = tempfile::tempdir().unwrap();
        let err = open(&StoreSettings::Etcd(settings), dir.path()).await.map(|_| ()).unwrap_err();
        assert!(format!("{err:#}").starts_with("cannot use etcd at http://127.0.0.1:1: "), "{err:#}");
    }
}

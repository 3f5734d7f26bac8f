//! What fills a claim, and the filling.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use croft_api::cdi::filling::is_being_filled;
use croft_api::cdi::{DataSource, DataSourceSource, DataVolume, DataVolumeSourceHttp, DataVolumeSourceRegistry};
use croft_image::oci::{self, Access, Platform, PullError, Reference};
use croft_image::{ImportError, Options, Progress, Transport};
use croft_meta::Chain;
use croft_reconcile::Key;
use kube::{Api, ResourceExt};
use tokio::sync::watch;

use super::status::{Kind, Step};
use super::{Inner, place};
use crate::image::settings;
use crate::volume::AttachedVolume;

/// How often users are told how far it is.
const REPORT: Duration = Duration::from_secs(1);
/// One DataSource may name another.
const DEEPEST: usize = 4;

/// Why a claim is not filled, in words for its DataVolume's condition.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) message: String,
    pub(super) may_pass: bool,
}

impl Failed {
    fn for_good(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: false }
    }

    fn for_now(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: true }
    }
}

impl From<ImportError> for Failed {
    fn from(error: ImportError) -> Self {
        Self { message: Chain(&error).to_string(), may_pass: error.may_pass() }
    }
}

impl From<PullError> for Failed {
    fn from(error: PullError) -> Self {
        let may_pass = match &error {
            PullError::Import(error) => error.may_pass(),
            // A registry may get better, an image or a secret may come.
            PullError::Unreachable { .. }
            | PullError::Refused { .. }
            | PullError::NotFound(_)
            | PullError::Unauthorized { .. } => true,
            _ => false,
        };
        Self { message: Chain(&error).to_string(), may_pass }
    }
}

/// What is asked for may come.
impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        Self::for_now(croft_reconcile::failure::message(&error))
    }
}

/// What fills it, with all names followed.
#[derive(Debug, PartialEq)]
pub(super) enum Resolved {
    Blank,
    Upload,
    Http(DataVolumeSourceHttp),
    Registry(DataVolumeSourceRegistry),
    Claim(Key),
    Snapshot(Key),
}

impl Resolved {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Upload => Kind::Upload,
            Self::Claim(_) | Self::Snapshot(_) => Kind::Clone,
            Self::Blank | Self::Http(_) | Self::Registry(_) => Kind::Import,
        }
    }
}

impl Inner {
    pub(super) async fn resolve(&self, volume: &DataVolume) -> Result<Resolved, Failed> {
        let spec = &volume.spec;
        if spec.content_type.as_deref() == Some("archive") {
            return Err(Failed::for_good("the contentType archive is not supported: volumes are disks"));
        }
        if !spec.checkpoints.is_empty() {
            return Err(Failed::for_good("imports in several stages (checkpoints) are not supported"));
        }
        let namespace = volume.namespace().unwrap_or_default();
        if let Some(reference) = &spec.source_ref {
            if reference.kind != "DataSource" {
                return Err(Failed::for_good(format!("sourceRef of the kind {} is not supported", reference.kind)));
            }
            let namespace = reference.namespace.clone().unwrap_or(namespace);
            return self.resolve_data_source(Key::new(namespace, reference.name.clone())).await;
        }
        let Some(source) = &spec.source else {
            return Err(Failed::for_good("the DataVolume has neither source nor sourceRef"));
        };
        if source.blank.is_some() {
            return Ok(Resolved::Blank);
        }
        if source.upload.is_some() {
            return Ok(Resolved::Upload);
        }
        if let Some(http) = &source.http {
            return Ok(Resolved::Http(http.clone()));
        }
        if let Some(registry) = &source.registry {
            return Ok(Resolved::Registry(registry.clone()));
        }
        if let Some(claim) = &source.pvc {
            return Ok(Resolved::Claim(Key::new(claim.namespace.clone(), claim.name.clone())));
        }
        if let Some(snapshot) = &source.snapshot {
            return Ok(Resolved::Snapshot(Key::new(snapshot.namespace.clone(), snapshot.name.clone())));
        }
        Err(Failed::for_good("the source is not supported; use http, registry, upload, pvc, snapshot or blank"))
    }

    async fn resolve_data_source(&self, mut key: Key) -> Result<Resolved, Failed> {
        for _ in 0..DEEPEST {
            let api: Api<DataSource> = Api::namespaced(self.client.clone(), &key.namespace);
            let DataSourceSource { pvc, snapshot, data_source } = api.get(&key.name).await?.spec.source;
            if let Some(claim) = pvc {
                return Ok(Resolved::Claim(Key::new(claim.namespace, claim.name)));
            }
            if let Some(snapshot) = snapshot {
                return Ok(Resolved::Snapshot(Key::new(snapshot.namespace, snapshot.name)));
            }
            let Some(next) = data_source else {
                return Err(Failed::for_now(format!("DataSource {key} has no source")));
            };
            key = Key::new(next.namespace, next.name);
        }
        Err(Failed::for_good("the DataSources refer to one another without end"))
    }

    /// Fills the claim's file.
    pub(super) async fn bring(
        &self,
        key: &Key,
        volume: &DataVolume,
        attached: &AttachedVolume,
        resolved: &Resolved,
    ) -> Result<(), Failed> {
        let uid = volume.uid().unwrap_or_default();
        let (send, seen) = watch::channel(Progress { done: 0, total: None });
        let progress = Arc::new(move |progress| _ = send.send_replace(progress));
        let options = Options { progress, ..self.options(&uid, attached)? };
        let namespace = &key.namespace;
        let work = async {
            match resolved {
                // The provisioner made it: zeros, or the image of its class.
                Resolved::Blank | Resolved::Upload => Ok(()),
                Resolved::Http(source) => self.download(namespace, source, options, attached).await,
                Resolved::Registry(source) => self.pull(namespace, source, options, attached).await,
                Resolved::Claim(source) => self.copy(source, attached).await,
                Resolved::Snapshot(source) => self.restore(source, attached).await,
            }
        };
        tokio::select! {
            result = work => result,
            () = self.report(key, volume, resolved.kind(), seen) => Err(Failed::for_now("nobody reports any more")),
        }
    }

    /// Tells how far it is, now and then; has no end.
    async fn report(&self, key: &Key, volume: &DataVolume, kind: Kind, mut seen: watch::Receiver<Progress>) {
        loop {
            if seen.changed().await.is_err() {
                return std::future::pending().await;
            }
            let Progress { done, total } = *seen.borrow_and_update();
            if let Some(percent) = percent(done, total)
                && let Err(error) = self.tell(key, volume, &Step::Running(kind, Some(percent))).await
            {
                tracing::debug!(data_volume = %key, error = %Chain(&error), "progress could not be told");
            }
            tokio::time::sleep(REPORT).await;
        }
    }

    async fn download(
        &self,
        namespace: &str,
        source: &DataVolumeSourceHttp,
        options: Options,
        attached: &AttachedVolume,
    ) -> Result<(), Failed> {
        let mut transport = self.images.settings().transport();
        transport.headers.clone_from(&source.extra_headers);
        for name in &source.secret_extra_headers {
            transport.headers.extend(settings::texts(&settings::secret(&self.client, namespace, name).await?));
        }
        if let Some(name) = named(source.secret_ref.as_ref()) {
            transport.credentials = settings::credentials(&settings::secret(&self.client, namespace, name).await?, "");
        }
        self.trust(namespace, source.cert_config_map.as_ref(), &mut transport).await?;
        transport.is_insecure = source.insecure_skip_verify.unwrap_or_default();
        let checksum = named(source.checksum.as_ref()).map(str::parse).transpose();
        let checksum = checksum.map_err(|error: croft_image::ChecksumError| Failed::for_good(error.to_string()))?;
        let (staged, options) = (self.staged(&options.key), Options { checksum, ..options });
        croft_image::import_url(&source.url, &transport, &staged, &options).await?;
        Ok(place(staged, attached.path.clone()).await?)
    }

    async fn pull(
        &self,
        namespace: &str,
        source: &DataVolumeSourceRegistry,
        options: Options,
        attached: &AttachedVolume,
    ) -> Result<(), Failed> {
        let Some(url) = source.url.as_deref().and_then(|url| url.strip_prefix("docker://")) else {
            return Err(Failed::for_good(
                "the registry's url must be docker://<image>; image streams and archives are not supported",
            ));
        };
        let parsed: Result<Reference, _> = url.parse();
        let reference =
            parsed.map_err(|error| Failed::for_good(format!("{url} is not the name of an image: {error}")))?;
        let credentials = match named(source.secret_ref.as_ref()) {
            None => None,
            Some(name) => {
                let secret = settings::secret(&self.client, namespace, name).await?;
                settings::credentials(&secret, reference.registry())
            }
        };
        let Access { mut transport, insecure_registries } = self.images.settings().access(credentials);
        self.trust(namespace, source.cert_config_map.as_ref(), &mut transport).await?;
        let mut platform = Platform::default();
        if let Some(architecture) = source.platform.as_ref().and_then(|platform| platform.architecture.clone()) {
            platform.architecture = architecture;
        }
        let found = oci::find(&reference, &platform, &Access { transport, insecure_registries }).await?;
        let staged = self.staged(&options.key);
        found.pull(None, &staged, &options).await?;
        Ok(place(staged, attached.path.clone()).await?)
    }

    async fn trust(&self, namespace: &str, map: Option<&String>, transport: &mut Transport) -> Result<(), Failed> {
        if let Some(name) = named(map) {
            let more = settings::certificates(&self.client, namespace, name).await?;
            transport.ca_pem = format!("{}\n{more}", transport.ca_pem);
        }
        Ok(())
    }

    async fn copy(&self, source: &Key, attached: &AttachedVolume) -> Result<(), Failed> {
        if self.claims.get(source).is_some_and(|claim| is_being_filled(&claim)) {
            return Err(Failed::for_now(format!("claim {source} is still being filled")));
        }
        let from = self.volumes.attach(&source.namespace, &source.name);
        let from = from.map_err(|error| Failed::for_now(Chain(&error).to_string()))?;
        copy_file(from.path, from.size_bytes, attached).await
    }

    async fn restore(&self, source: &Key, attached: &AttachedVolume) -> Result<(), Failed> {
        let (path, size_bytes) = self.volumes.snapshot_file(source).map_err(Failed::for_now)?;
        copy_file(path, size_bytes, attached).await
    }
}

async fn copy_file(from: PathBuf, size_bytes: u64, attached: &AttachedVolume) -> Result<(), Failed> {
    if size_bytes > attached.size_bytes {
        let sizes = format!("{size_bytes} bytes do not fit into {}", attached.size_bytes);
        return Err(Failed::for_good(format!(
            "target resources requests storage size is smaller than the source: {sizes}"
        )));
    }
    let to = attached.path.clone();
    let copied = tokio::task::spawn_blocking(move || croft_image::place(&from, &to)).await;
    Ok(copied.map_err(|_| ImportError::Panicked)??)
}

fn named(name: Option<&String>) -> Option<&str> {
    name.map(|name| name.trim()).filter(|name| !name.is_empty())
}

/// 100 is said only when it is done.
fn percent(done: u64, total: Option<u64>) -> Option<f64> {
    let total = total.filter(|total| *total > 0)?;
    let thousandths = u16::try_from(done.saturating_mul(1000) / total).unwrap_or(999).min(999);
    Some(f64::from(thousandths) / 10.0)
}

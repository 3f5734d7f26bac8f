//! The server's own certificate and the admin's, renewed in time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::settings::{AUTO_ROTATE, Rotation};
use croft_meta::Chain;
use croft_pki::kubeconfig::Credentials;
use croft_pki::{CertResolver, Kubeconfig, ServerNames, ServingCert};
use jiff::Timestamp;
use serde_json::Value;

use crate::server::ApiServer;
use crate::{serve, web_tls};

/// How often certificates are looked at; they are renewed with a third of their life left, or when the setting says.
const CHECK: Duration = Duration::from_hours(1);
/// The admin certificate in the kubeconfig is renewed, like the server's own, with a third of this left.
const ADMIN_CERT_TTL: Duration = Duration::from_hours(365 * 24);

/// An admin kubeconfig for the first listener; kept as it is while it is still good and does not end within `ahead`.
pub(crate) fn write_kubeconfig(
    data_dir: &Path,
    server: &ApiServer,
    first: SocketAddr,
    ahead: Duration,
    now: Timestamp,
) -> Result<PathBuf, croft_pki::Error> {
    let (path, ca) = (data_dir.join("kubeconfig"), &server.ca);
    let is_revoked = |pem: &str| {
        let known = croft_pki::client_cert::describe(pem.as_bytes());
        known.is_some_and(|(marks, ..)| server.auth.authenticator.revoked.has_certificate(&marks))
    };
    let server = format!("https://{}", serve::reachable(first));
    if let Ok(Some(kept)) = Kubeconfig::read(&path)
        && kept.server == server
        && kept.ca_pem == ca.cert_pem()
        && let Credentials::Certificate { cert_pem, .. } = &kept.credentials
        && !croft_pki::ca::pem_due_for_renewal(cert_pem, ahead, now)
        // Whoever took the admin's certificate must not have taken it from the admin.
        && !is_revoked(cert_pem)
    {
        return Ok(path);
    }
    let issued = ca.issue_client("admin", &["system:masters".to_owned()], ADMIN_CERT_TTL, now)?;
    let kubeconfig = Kubeconfig {
        server,
        ca_pem: ca.cert_pem().to_owned(),
        cluster: "croft".to_owned(),
        user: "admin".to_owned(),
        credentials: issued.into(),
    };
    kubeconfig.write(&path)?;
    Ok(path)
}

/// What clients are shown, and how it was made.
pub(crate) struct Served {
    pub(crate) resolver: Arc<CertResolver>,
    pub(crate) cert: ServingCert,
    pub(crate) names: ServerNames,
    pub(crate) data_dir: PathBuf,
    pub(crate) first: SocketAddr,
}

impl Served {
    /// Keeps the serving certificate young, and the one in the admin kubeconfig, until the server stops.
    pub(crate) async fn renew(mut self, server: Arc<ApiServer>) {
        let mut settings = server.cache.collection(web_tls::SETTINGS).subscribe();
        let mut secrets = server.cache.collection("core/secrets").subscribe();
        let revoked = || server.auth.authenticator.revoked.revision();
        let stop = server.stopping();
        let mut seen = revoked();
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK) => {}
                result = settings.changed() => if result.is_err() { return },
                result = secrets.changed() => match result {
                    Ok(()) if revoked() != seen => seen = revoked(),
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = stop.cancelled() => return,
            }
            self.look(&server).await;
        }
    }

    async fn look(&mut self, server: &ApiServer) {
        let now = server.auth.authenticator.revoked.time_to_issue().await;
        let ahead = ahead(server);
        if let Err(error) = write_kubeconfig(&self.data_dir, server, self.first, ahead, now) {
            tracing::error!(error = %Chain(&error), "the admin kubeconfig could not be renewed");
        }
        if !self.cert.due_for_renewal(now) && !self.cert.ends_within(ahead, now) {
            return;
        }
        match ServingCert::issue(&self.data_dir.join("pki"), &server.ca, &self.names, now) {
            Ok(renewed) => {
                self.resolver.swap(&renewed);
                self.cert = renewed;
                tracing::info!("the serving certificate was renewed");
            }
            Err(error) => tracing::error!(error = %Chain(&error), "the serving certificate could not be renewed"),
        }
    }
}

/// How long before their end certificates are renewed in any case, as the setting says.
fn ahead(server: &ApiServer) -> Duration {
    let setting = server.cache.collection(web_tls::SETTINGS).get(AUTO_ROTATE).map(|setting| setting.json());
    let value = setting.as_ref().and_then(|setting| setting.get("value")).and_then(Value::as_str);
    let rotation: Option<Rotation> = value.and_then(|value| serde_json::from_str(value).ok());
    rotation.unwrap_or_default().ahead()
}

//! How the listeners for browsers speak TLS: with the certificate and the parameters that users have set.
//!
//! The settings `ssl-certificates` and `ssl-parameters` count for every listener but the first, as they count for
//! Harvester's port 443 and not for 6443: kubeconfigs lead to the first, and trust the authority of this server alone.

use std::sync::Arc;

use arc_swap::ArcSwap;
use croft_api::harvester::settings::{ServingCertificate, TlsParameters, default_of};
use croft_meta::{ApiError, Chain, object};
use croft_pki::tls::{self, Offer};
use croft_pki::{Ca, CertResolver, ServingCert};
use rustls::ServerConfig;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::server::ApiServer;

pub(crate) const SETTINGS: &str = "harvesterhci.io/settings";
const CERTIFICATES: &str = "ssl-certificates";
const PARAMETERS: &str = "ssl-parameters";

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("the value cannot be read")]
    Read(#[from] serde_json::Error),
    #[error("the certificate and its key cannot be used")]
    Certificate(#[source] rustls::Error),
    #[error("the protocols and ciphers cannot be used")]
    Offer(#[source] croft_pki::Error),
}

/// What users have set.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    certificate: ServingCertificate,
    parameters: TlsParameters,
}

/// Swaps the configuration whenever one of the settings changes. Open connections go on.
pub(crate) async fn follow(server: Arc<ApiServer>, own: Arc<CertResolver>, speaking: Arc<ArcSwap<ServerConfig>>) {
    let mut changed = server.cache.collection(SETTINGS).subscribe();
    let stop = server.stopping();
    let mut current = Chosen::default();
    loop {
        match chosen(&server) {
            Ok(chosen) if chosen != current => match config(&chosen, &own, &server.ca) {
                Ok(config) => {
                    speaking.store(config);
                    current = chosen;
                    tracing::info!("the web listeners speak TLS as the settings say");
                }
                Err(error) => tracing::error!(error = %Chain(&error), "the settings of TLS cannot be used"),
            },
            Ok(_) => {}
            Err(error) => tracing::error!(error = %Chain(&error), "the settings of TLS cannot be read"),
        }
        tokio::select! {
            result = changed.changed() => if result.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

fn chosen(server: &ApiServer) -> Result<Chosen, Unusable> {
    Ok(Chosen { certificate: stored(server, CERTIFICATES)?, parameters: stored(server, PARAMETERS)? })
}

fn stored<T: DeserializeOwned>(server: &ApiServer, name: &str) -> Result<T, Unusable> {
    let setting = server.cache.collection(SETTINGS).get(name).map(|setting| setting.json());
    parsed(name, setting.as_ref())
}

fn parsed<T: DeserializeOwned>(name: &str, setting: Option<&Value>) -> Result<T, Unusable> {
    let value = setting.and_then(|setting| setting.get("value")).and_then(Value::as_str);
    let value = value.filter(|value| !value.is_empty()).or(default_of(name)).unwrap_or("{}");
    Ok(serde_json::from_str(value)?)
}

fn config(chosen: &Chosen, own: &Arc<CertResolver>, ca: &Ca) -> Result<Arc<ServerConfig>, Unusable> {
    let offer = offer(&chosen.parameters);
    if chosen.certificate.public_certificate.is_empty() {
        let own: Arc<CertResolver> = Arc::clone(own);
        return tls::chosen_config(own, ca, &offer).map_err(Unusable::Offer);
    }
    let cert = certificate(&chosen.certificate)?;
    tls::foreign_config(&cert, ca, &offer).map_err(Unusable::Offer)
}

fn certificate(chosen: &ServingCertificate) -> Result<ServingCert, Unusable> {
    // Clients need what stands between the certificate and the authority that they know.
    let chain = format!("{}\n{}", chosen.public_certificate, chosen.ca);
    ServingCert::from_pem(&chain, &chosen.private_key).map_err(Unusable::Certificate)
}

fn offer(parameters: &TlsParameters) -> Offer {
    let ciphers = parameters.ciphers.split(':').filter(|cipher| !cipher.is_empty());
    Offer {
        protocols: parameters.protocols.split_whitespace().map(str::to_owned).collect(),
        ciphers: ciphers.map(str::to_owned).collect(),
    }
}

/// Refuses what could not be served. Values that cannot even be read are refused by the rules of settings.
pub(crate) fn check(server: &ApiServer, setting: &Value) -> Result<(), ApiError> {
    let name = object::name(setting);
    let result = match name {
        CERTIFICATES => match parsed::<ServingCertificate>(name, Some(setting)) {
            Ok(chosen) if !chosen.public_certificate.is_empty() && !chosen.private_key.is_empty() => {
                certificate(&chosen).map(drop)
            }
            _ => Ok(()),
        },
        PARAMETERS => match parsed::<TlsParameters>(name, Some(setting)) {
            Ok(parameters) => check_parameters(&parameters, &server.ca),
            Err(_) => Ok(()),
        },
        _ => Ok(()),
    };
    let Err(error) = result else { return Ok(()) };
    let why = Chain(&error).to_string();
    let message = format!("admission webhook \"validator.harvesterhci.io\" denied the request: {name}: {why}");
    Err(ApiError::new(422, "Invalid", message))
}

fn check_parameters(parameters: &TlsParameters, ca: &Ca) -> Result<(), Unusable> {
    let offer = offer(parameters);
    // Names of unknown protocols have a better message elsewhere.
    let speaks = |name: &String| ["TLSv1.2", "TLSv1.3"].contains(&name.as_str());
    if !offer.protocols.is_empty() && !offer.protocols.iter().any(speaks) {
        return Ok(());
    }
    tls::check_offer(&offer, ca).map_err(Unusable::Offer)
}

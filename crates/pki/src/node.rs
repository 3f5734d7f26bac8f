//! How the API server and the agents of the nodes know each other: mutual TLS under Croft's own authority.
//!
//! An agent shows a certificate for `<node>.nodes.croft`, whatever address it is reached by, so that one node cannot
//! answer for another. The API server shows itself as the user [`API_SERVER`], and an agent talks to nobody else.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};

use crate::{Ca, Error, Result, Secret, tls};

/// The user that the API server is to the agents.
pub const API_SERVER: &str = "croft:apiserver";
/// How long the API server's client certificate lasts.
const CLIENT_LIFE: Duration = Duration::from_hours(365 * 24);

/// What the agent of a node serves with, and by whom it is called.
#[derive(Clone, Debug)]
pub struct AgentTls {
    pub cert_pem: String,
    /// PKCS #8.
    pub key_pem: Secret,
    /// Whoever calls the agent shows a certificate of this authority.
    pub ca_pem: String,
    /// Ask for a new identity well before this.
    pub not_after: Timestamp,
}

/// The name in an agent's certificate.
pub fn agent_name(node: &str) -> String {
    format!("{node}.nodes.croft")
}

impl Ca {
    /// A serving certificate for the agent of one node, good for a year.
    pub fn issue_agent(&self, node: &str, addresses: &[IpAddr], now: Timestamp) -> Result<AgentTls> {
        let name = agent_name(node);
        let issued = self.issue_serving(&name, std::slice::from_ref(&name), addresses, now)?;
        Ok(AgentTls {
            cert_pem: issued.cert_pem,
            key_pem: issued.key_pem,
            ca_pem: self.cert_pem().to_owned(),
            not_after: issued.not_after,
        })
    }
}

/// TLS as the API server speaks it to agents.
#[derive(Clone, Debug)]
pub struct NodeClient {
    pub config: Arc<ClientConfig>,
    cert: CertificateDer<'static>,
}

impl NodeClient {
    pub fn issue(ca: &Ca, now: Timestamp) -> Result<Self> {
        let issued = ca.issue_client(API_SERVER, &[], CLIENT_LIFE, now)?;
        let broken = |err: rustls::pki_types::pem::Error| Error::Tls(rustls::Error::General(err.to_string()));
        let cert = CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).map_err(broken)?;
        let key = PrivateKeyDer::from_pem_slice(issued.key_pem.reveal().as_bytes()).map_err(broken)?;
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(Error::Tls)?
            .with_root_certificates(ca.roots())
            .with_client_auth_cert(vec![cert.clone()], key)
            .map_err(Error::Tls)?;
        Ok(Self { config: Arc::new(config), cert })
    }

    pub fn due_for_renewal(&self, now: Timestamp) -> bool {
        crate::ca::due_for_renewal(&self.cert, now)
    }
}

/// The name to expect of a node's agent; `None` if it cannot stand in a certificate.
pub fn server_name(node: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(agent_name(node)).ok()
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::server::WebPkiClientVerifier;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::now()
    }

    /// Runs a handshake in memory; gives the client's verdict and then the server's.
    fn handshake(client: &NodeClient, agent: &AgentTls, ca: &Ca, node: &str) -> Result<(), String> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(ca.roots(), tls::provider()).build().expect("a verifier");
        let cert = CertificateDer::from_pem_slice(agent.cert_pem.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(agent.key_pem.reveal().as_bytes()).expect("a key");
        let server = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![cert], key)
            .expect("a server");
        let mut server = rustls::ServerConnection::new(Arc::new(server)).expect("a server");
        let name = server_name(node).expect("a name");
        let mut client = rustls::ClientConnection::new(Arc::clone(&client.config), name).expect("a client");
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).expect("written");
            server.read_tls(&mut wire.as_slice()).expect("read");
            server.process_new_packets().map_err(|err| format!("server: {err}"))?;
            let mut wire = Vec::new();
            server.write_tls(&mut wire).expect("written");
            client.read_tls(&mut wire.as_slice()).expect("read");
            client.process_new_packets().map_err(|err| format!("client: {err}"))?;
        }
        Ok(())
    }

    #[test]
    fn agents_and_the_api_server_know_each_other_and_nobody_else() {
        let (dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ca = Ca::load_or_create(dir.path(), now()).unwrap();
        let other = Ca::load_or_create(other_dir.path(), now()).unwrap();
        let agent = ca.issue_agent("a", &["192.0.2.1".parse().unwrap()], now()).unwrap();
        let client = NodeClient::issue(&ca, now()).unwrap();

        assert_eq!(handshake(&client, &agent, &ca, "a"), Ok(()));
        // Another node cannot answer for it.
        let wrong = handshake(&client, &agent, &ca, "b").unwrap_err();
        assert!(wrong.starts_with("client: "), "{wrong}");
        let foreign = other.issue_agent("a", &[], now()).unwrap();
        assert!(handshake(&client, &foreign, &ca, "a").unwrap_err().starts_with("client: "));
        let stranger = NodeClient::issue(&other, now()).unwrap();
        assert!(handshake(&stranger, &foreign, &ca, "a").unwrap_err().starts_with("server: "));
    }

    #[test]
    fn the_client_certificate_is_renewed_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::load_or_create(dir.path(), now()).unwrap();
        let client = NodeClient::issue(&ca, now()).unwrap();
        assert!(!client.due_for_renewal(now()));
        let later = Timestamp::from_second(now().as_second() + 300 * 86_400).unwrap();
        assert!(client.due_for_renewal(later));
        let chain = [client.cert.clone()];
        assert_eq!(ca.verify_client(&chain, now()).unwrap().user, API_SERVER);
    }
}

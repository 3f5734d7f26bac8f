//! Something between us and a server that can be cut, or answer in its place.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// Connections are closed at once.
    Cut,
    /// This status, with this code in its text.
    Answer(u16, &'static str),
}

pub(crate) struct Relay {
    pub(crate) port: u16,
    mode: Arc<Mutex<Mode>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    refused: Arc<watch::Sender<u64>>,
    _accepting: AbortOnDropHandle<()>,
}

impl Relay {
    pub(crate) async fn to(server: u16) -> Self {
        Self::start(server, None).await
    }

    async fn start(server: u16, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mode, connections) = (Arc::new(Mutex::new(Mode::Pass)), Arc::new(Mutex::new(JoinSet::new())));
        let refused = Arc::new(watch::Sender::new(0));
        let (modes, all, refusals) = (mode.clone(), connections.clone(), refused.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mode = *modes.lock();
                if mode == Mode::Cut {
                    refusals.send_modify(|count| *count += 1);
                }
                let tls = tls.clone();
                all.lock().spawn(async move {
                    match tls {
                        None => serve(client, server, mode).await,
                        Some(tls) => {
                            if let Ok(client) = tls.accept(client).await {
                                serve(client, server, mode).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, mode, connections, refused, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Until somebody, from now on, comes in vain.
    pub(crate) async fn has_refused(&self) {
        self.refused.subscribe().changed().await.unwrap();
    }

    /// The same with TLS on our side. Gives its certificate too.
    pub(crate) async fn with_tls_to(server: u16) -> (Self, String) {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let certificates = vec![certified.cert.der().clone()];
        let config = config.with_no_client_auth().with_single_cert(certificates, key.into()).unwrap();
        (Self::start(server, Some(TlsAcceptor::from(Arc::new(config)))).await, certified.cert.pem())
    }

    /// Those who are connected are cut off.
    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
        self.connections.lock().abort_all();
    }
}

async fn serve(mut client: impl AsyncRead + AsyncWrite + Unpin, server: u16, mode: Mode) {
    match mode {
        Mode::Cut => {}
        Mode::Pass => {
            if let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        }
        Mode::Answer(status, code) => {
            let body = format!("<Error><Code>{code}</Code><Message>as the test wants</Message></Error>");
            let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nConnection: close\r\n");
            let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
            let _ = client.read(&mut [0; 4096]).await;
            let _ = client.write_all(answer.as_bytes()).await;
            // What is still being sent is taken, so that the answer is not lost in a reset.
            let mut rest = vec![0; 65536];
            while client.read(&mut rest).await.is_ok_and(|read| read > 0) {}
        }
    }
}

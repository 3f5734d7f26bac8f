//! One HTTP request to a guest. As in Kubernetes, its certificate is not looked at: the guest is known by its address.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Any answer from 200 to 399 is a good one.
pub(super) async fn get(stream: TcpStream, get: &HTTPGetAction) -> Result<(), String> {
    let peer = stream.peer_addr().map_err(|error| error.to_string())?;
    if get.scheme.as_deref() != Some("HTTPS") {
        return ask(stream, get, &peer.to_string()).await;
    }
    let config = ClientConfig::builder_with_provider(croft_pki::tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(croft_pki::any_server::verifier())
        .with_no_client_auth();
    let name = ServerName::IpAddress(peer.ip().into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| error.to_string())?;
    ask(stream, get, &peer.to_string()).await
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    get: &HTTPGetAction,
    host: &str,
) -> Result<(), String> {
    let request = request(get, host)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let mut exchange = pin!(sender.send_request(request));
    // The connection is driven here, not by a task of its own: it ends with the question.
    let response = tokio::select! {
        response = &mut exchange => response,
        // It may have brought the answer with its end.
        _ = connection => exchange.await,
    };
    let response = response.map_err(|error| error.to_string())?;
    let code = response.status().as_u16();
    if (200..400).contains(&code) { Ok(()) } else { Err(format!("the guest answered {code}")) }
}

fn request(get: &HTTPGetAction, host: &str) -> Result<Request<Empty<Bytes>>, String> {
    let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut request = Request::get(format!("{slash}{path}"));
    let mut has_host = false;
    for header in get.http_headers.iter().flatten() {
        let name: HeaderName = header.name.parse().map_err(|_| format!("{:?} is not a header", header.name))?;
        let value = HeaderValue::from_str(&header.value).map_err(|error| error.to_string())?;
        has_host |= name == http::header::HOST;
        request = request.header(name, value);
    }
    if !has_host {
        request = request.header(http::header::HOST, host);
    }
    request.header(http::header::CONNECTION, "close").body(Empty::new()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn codes_below_400_are_good() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (code, is_good) in [("200 OK", true), ("302 Found", true), ("404 Not Found", false), ("503 Busy", false)] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut guest, _) = listener.accept().await.unwrap();
            let action = HTTPGetAction { path: Some("health".to_owned()), ..HTTPGetAction::default() };
            let asked = tokio::spawn(async move { get(stream, &action).await });
            let mut head = [0; 17];
            guest.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"GET /health HTTP/");
            guest.write_all(format!("HTTP/1.1 {code}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
            assert_eq!(asked.await.unwrap().is_ok(), is_good, "{code}");
        }
    }
}

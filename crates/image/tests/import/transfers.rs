//! Servers that cut off, stall, lie and change; uploads that break off.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_image::{
    Credentials, ImportError, Limits, Options, Progress, Proxy, Transport, forget, import_stream, import_url,
};
use futures::stream;
use parking_lot::Mutex;

use super::server::{Answer, Server};
use super::{Place, noise};

fn image(size: usize) -> Vec<u8> {
    let mut image = noise(size);
    // Neither text nor anything else that is known.
    image[..8].fill(0);
    image
}

async fn import(server: &Server, place: &Place) -> Result<croft_image::Imported, ImportError> {
    import_url(&server.url("image"), &Transport::default(), &place.destination(), &place.options()).await
}

#[tokio::test]
async fn a_download_that_is_cut_off_goes_on_where_it_was() {
    let (place, body) = (Place::new(), image(1 << 20));
    let sent = body.clone();
    let server = Server::start(move |request| {
        let answer = Answer::honest(request, &sent, "tag");
        if request.number < 3 { answer.cut(200_000) } else { answer }
    })
    .await;
    import(&server, &place).await.unwrap();
    assert!(fs::read(place.destination()).unwrap() == body);
    assert_eq!(server.requests(), 4);
    assert_eq!(place.left(), ["image.raw"]);
}

#[tokio::test]
async fn a_download_that_stalls_goes_on_by_another_connection() {
    let (place, body) = (Place::new(), image(1 << 20));
    let sent = body.clone();
    let server = Server::start(move |request| {
        let answer = Answer::honest(request, &sent, "tag");
        if request.number == 0 { Answer { stalls: true, ..answer.cut(300_000) } } else { answer }
    })
    .await;
    let transport = Transport { stall: Duration::from_millis(300), ..Transport::default() };
    import_url(&server.url("image"), &transport, &place.destination(), &place.options()).await.unwrap();
    assert!(fs::read(place.destination()).unwrap() == body);
}

#[tokio::test]
async fn a_download_goes_on_after_we_were_gone() {
    let (place, body) = (Place::new(), image(1 << 20));
    let sent = body.clone();
    let server = Server::start(move |request| {
        let answer = Answer::honest(request, &sent, "tag");
        if request.number == 0 { Answer { stalls: true, ..answer.cut(600_000) } } else { answer }
    })
    .await;
    // The future is dropped in the middle, as when the agent stops.
    let received = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&received);
    let options = Options {
        progress: Arc::new(move |progress: Progress| {
            if progress.done >= 600_000 {
                told.notify_one();
            }
        }),
        ..place.options()
    };
    let (url, transport, destination) = (server.url("image"), Transport::default(), place.destination());
    let first = tokio::spawn(async move { import_url(&url, &transport, &destination, &options).await });
    received.notified().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(place.left(), ["key.part", "key.record"]);

    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let options =
        Options { progress: Arc::new(move |progress: Progress| told.lock().push(progress.done)), ..place.options() };
    import_url(&server.url("image"), &Transport::default(), &place.destination(), &options).await.unwrap();
    assert!(seen.lock().first().is_some_and(|first| *first > 600_000), "{:?}", seen.lock().first());
    assert!(fs::read(place.destination()).unwrap() == body);
    assert_eq!(place.left(), ["image.raw"]);
}

#[tokio::test]
async fn a_file_that_changes_once_is_downloaded_anew_and_never_mixed() {
    let (place, old, new) = (Place::new(), image(1 << 20), image(900 * 1024));
    let expected = new.clone();
    let server = Server::start(move |request| match request.number {
        0 => Answer::honest(request, &old, "old").cut(500_000),
        _ => Answer::honest(request, &new, "new"),
    })
    .await;
    import(&server, &place).await.unwrap();
    assert!(fs::read(place.destination()).unwrap() == expected);
}

#[tokio::test]
async fn a_file_that_keeps_changing_fails_and_leaves_nothing() {
    let (place, body) = (Place::new(), image(1 << 20));
    let server =
        Server::start(move |request| Answer::honest(request, &body, &request.number.to_string()).cut(500_000)).await;
    let error = import(&server, &place).await.unwrap_err();
    assert!(matches!(error, ImportError::Changed { .. }), "{error}");
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[tokio::test]
async fn a_range_of_another_size_is_not_taken() {
    let (place, body) = (Place::new(), image(1 << 20));
    let server = Server::start(move |request| match request.from() {
        None => Answer::honest(request, &body, "tag").cut(500_000),
        Some(from) => {
            let mut answer = Answer::whole(&body[from..], "tag");
            answer.status = "206 Partial Content";
            answer.headers.push(("content-range", format!("bytes {from}-{}/{}", body.len(), body.len() + 1)));
            answer
        }
    })
    .await;
    let error = import(&server, &place).await.unwrap_err();
    assert!(matches!(error, ImportError::Changed { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_announces_more_than_it_has_is_told_of() {
    let (place, body) = (Place::new(), image(1 << 20));
    let server = Server::start(move |request| {
        let mut answer = Answer::honest(request, &body, "tag");
        if request.from().is_none() {
            answer.headers[0].1 = (body.len() + 4096).to_string();
        }
        answer
    })
    .await;
    let error = import(&server, &place).await.unwrap_err();
    assert!(matches!(error, ImportError::Size { announced: 1_052_672, actual: 1_048_576, .. }), "{error}");
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[tokio::test]
async fn a_server_without_versions_is_asked_for_everything_again() {
    let (place, body) = (Place::new(), image(1 << 20));
    let sent = body.clone();
    let server = Server::start(move |request| {
        let mut answer = Answer::whole(&sent, "");
        answer.headers.truncate(1);
        if request.number == 0 { answer.cut(300_000) } else { answer }
    })
    .await;
    import(&server, &place).await.unwrap();
    assert!(fs::read(place.destination()).unwrap() == body);
}

#[tokio::test]
async fn what_a_server_refuses_is_not_asked_for_again_and_trouble_is() {
    for (status, requests) in [("404 Not Found", 1), ("403 Forbidden", 1), ("503 Service Unavailable", 4)] {
        let place = Place::new();
        let server = Server::start(move |_| Answer::status(status)).await;
        let error = import(&server, &place).await.unwrap_err();
        assert!(matches!(error, ImportError::Refused { .. }) && error.to_string().contains(status), "{error}");
        assert_eq!(server.requests(), requests, "{status}");
    }
}

#[tokio::test]
async fn a_dead_server_is_named() {
    let place = Place::new();
    let url = Server::honest(Vec::new()).await.url("image");
    let transport = Transport { stall: Duration::from_secs(1), ..Transport::default() };
    let error = import_url(&url, &transport, &place.destination(), &place.options()).await.unwrap_err();
    assert!(matches!(error, ImportError::Unreachable { .. }) && error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_but_not_for_ever() {
    let (place, body) = (Place::new(), image(1 << 16));
    let sent = body.clone();
    let server = Server::start(move |request| {
        let mut answer = Answer::status("302 Found");
        match request.path.as_str() {
            "/image" => answer.headers.push(("location", "/there".to_owned())),
            "/loop" => answer.headers.push(("location", "/loop".to_owned())),
            _ => answer = Answer::honest(request, &sent, "tag"),
        }
        answer
    })
    .await;
    import(&server, &place).await.unwrap();
    assert!(fs::read(place.destination()).unwrap() == body);
    let error = import_url(&server.url("loop"), &Transport::default(), &place.destination(), &place.options())
        .await
        .unwrap_err();
    assert!(matches!(error, ImportError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn checksums_count() {
    let (place, body) = (Place::new(), image(3 << 20));
    fs::write(place.made("body"), &body).unwrap();
    let server = Server::honest(body).await;
    for (program, is_right) in [("sha512sum", true), ("sha256sum", true), ("sha512sum", false)] {
        let output = std::process::Command::new(program).arg(place.made("body")).output().unwrap();
        let mut sum = String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned();
        if !is_right {
            sum.replace_range(..2, if sum.starts_with("00") { "11" } else { "00" });
        }
        let options = Options { checksum: Some(sum.parse().unwrap()), ..place.options() };
        let result = import_url(&server.url("x"), &Transport::default(), &place.destination(), &options).await;
        if is_right {
            assert_eq!(result.unwrap().checksum.unwrap().hex(), sum);
            fs::remove_file(place.destination()).unwrap();
        } else {
            assert!(matches!(result, Err(ImportError::Checksum { .. })), "{result:?}");
        }
        assert!(place.left().is_empty(), "{:?}", place.left());
    }
}

#[tokio::test]
async fn limits_hold_before_and_while_it_comes() {
    let (place, body) = (Place::new(), image(1 << 20));
    let options = Options { limits: Limits { source_bytes: 1 << 19, ..Limits::default() }, ..place.options() };
    for has_length in [true, false] {
        let sent = body.clone();
        let server = Server::start(move |request| {
            let mut answer = Answer::honest(request, &sent, "tag");
            if !has_length {
                answer.headers.remove(0);
            }
            answer
        })
        .await;
        let result = import_url(&server.url("x"), &Transport::default(), &place.destination(), &options).await;
        assert!(matches!(result, Err(ImportError::TooLarge { .. })), "{result:?}");
        assert!(place.left().is_empty(), "{:?}", place.left());
    }
    // More than any disk has.
    let server = Server::start(|_| {
        let mut answer = Answer::whole(&[], "tag");
        answer.headers[0].1 = (3_u64 << 40).to_string();
        answer
    })
    .await;
    let result = import(&server, &place).await;
    assert!(matches!(result, Err(ImportError::NoSpace { .. })), "{result:?}");
}

#[tokio::test]
async fn what_came_is_kept_for_another_try_until_it_is_forgotten() {
    let (place, body) = (Place::new(), image(1 << 20));
    let server = Server::start(move |request| match request.number {
        0 => Answer::honest(request, &body, "tag").cut(500_000),
        _ => Answer::status("503 Service Unavailable"),
    })
    .await;
    let error = import(&server, &place).await.unwrap_err();
    assert!(error.may_pass(), "{error}");
    assert_eq!(place.left(), ["key.part", "key.record"]);
    forget(&place.options().work_dir, "key");
    assert!(place.left().is_empty());
}

#[tokio::test]
async fn a_proxy_is_used_except_where_it_is_not_wanted() {
    let (place, body) = (Place::new(), image(1 << 16));
    let sent = body.clone();
    let proxy = Server::start(move |request| {
        assert_eq!(request.path, "http://images.example/x");
        Answer::honest(request, &sent, "tag")
    })
    .await;
    let through = Proxy { http: proxy.url(""), ..Proxy::default() };
    let transport = Transport { proxy: through.clone(), ..Transport::default() };
    import_url("http://images.example/x", &transport, &place.destination(), &place.options()).await.unwrap();
    assert_eq!(proxy.requests(), 1);

    let direct = Server::honest(body).await;
    let proxy_but = Proxy { none_for: "localhost,127.0.0.1".to_owned(), ..through };
    let transport = Transport { proxy: proxy_but, ..Transport::default() };
    import_url(&direct.url("x"), &transport, &place.destination(), &place.options()).await.unwrap();
    assert_eq!((proxy.requests(), direct.requests()), (1, 1));
}

#[tokio::test]
async fn credentials_and_headers_go_along() {
    let (place, body) = (Place::new(), image(1 << 16));
    let server = Server::start(move |request| {
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        if header("authorization") == Some("Basic dXNlcjpwYXNz") && header("x-kind") == Some("disk") {
            return Answer::honest(request, &body, "tag");
        }
        Answer::status("401 Unauthorized")
    })
    .await;
    let transport = Transport {
        credentials: Some(Credentials { user: "user".to_owned(), password: "pass".to_owned() }),
        headers: vec!["X-Kind: disk".to_owned()],
        ..Transport::default()
    };
    import_url(&server.url("x"), &transport, &place.destination(), &place.options()).await.unwrap();
    assert!(!format!("{transport:?}").contains("pass\""));
}

async fn upload(pieces: Vec<io::Result<Bytes>>, declared: Option<u64>, place: &Place) -> Result<u64, ImportError> {
    let options = place.options();
    let stall = Duration::from_secs(5);
    let imported = import_stream(stream::iter(pieces), declared, stall, &place.destination(), &options).await?;
    Ok(imported.virtual_size)
}

fn pieces(body: &[u8]) -> Vec<io::Result<Bytes>> {
    body.chunks(10_000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect()
}

#[tokio::test]
async fn an_upload_must_be_as_long_as_it_says_and_come_to_its_end() {
    let (place, body) = (Place::new(), image(1 << 20));
    let size = body.len() as u64;
    assert_eq!(upload(pieces(&body), Some(size), &place).await.unwrap(), size);
    assert!(fs::read(place.destination()).unwrap() == body);
    fs::remove_file(place.destination()).unwrap();

    for declared in [size - 512, size + 512] {
        let result = upload(pieces(&body), Some(declared), &place).await;
        assert!(matches!(result, Err(ImportError::Declared { .. })), "{result:?}");
    }
    let mut broken = pieces(&body[..500_000]);
    broken.push(Err(io::Error::other("connection reset")));
    let error = upload(broken, Some(size), &place).await.unwrap_err();
    assert!(error.to_string().contains("after 500000 bytes: connection reset"), "{error}");
    let text = vec![Ok(Bytes::from_static(b"hello"))];
    assert!(matches!(upload(text, None, &place).await, Err(ImportError::Format(_))));
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_nothing() {
    let place = Place::new();
    let options = place.options();
    let endless = stream::poll_fn({
        let mut first = true;
        move |_| {
            if std::mem::take(&mut first) {
                return std::task::Poll::Ready(Some(io::Result::Ok(Bytes::from_static(&[0; 4096]))));
            }
            std::task::Poll::Pending
        }
    });
    let destination = place.destination();
    let work = import_stream(endless, None, Duration::from_millis(200), Path::new(&destination), &options);
    let error = work.await.unwrap_err();
    assert!(matches!(error, ImportError::Stalled { .. }), "{error}");
    assert!(place.left().is_empty(), "{:?}", place.left());
}

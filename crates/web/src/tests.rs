use http::Request;

use super::*;
use crate::files::{Embedded, Found, OnDisk};

const BUILT: Embedded = Embedded(&[
    ("assets/app-1a2b.js", "t1", b"plain script"),
    ("assets/app-1a2b.js.br", "t2", b"brotli"),
    ("assets/app-1a2b.js.gz", "t3", b"gzip"),
    ("favicon.svg", "t4", b"<svg/>"),
    ("index.html", "t5", b"the page"),
]);

fn ask(files: &impl Files, method: &str, path: &str, headers: &[(&str, &str)]) -> Option<Response<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    answer_from(files, &request.body(()).unwrap().into_parts().0)
}

fn header<'a>(answer: &'a Response<Bytes>, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn browsers_are_led_to_the_page_and_programs_are_not() {
    let html = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let answer = ask(&BUILT, "GET", "/", &html).unwrap();
    assert_eq!((answer.status().as_u16(), header(&answer, "location")), (302, ROOT));
    assert_eq!(ask(&BUILT, "GET", "/dashboard", &[]).unwrap().status(), 302);
    for (path, headers) in [
        ("/", &[][..]),
        ("/", &[("accept", "application/json, */*")]),
        ("/api", &html),
        ("/dashboards/x", &html),
        ("/version", &html),
    ] {
        assert!(ask(&BUILT, "GET", path, headers).is_none(), "{path}");
    }
    assert!(ask(&BUILT, "POST", "/", &html).is_none());
}

#[test]
fn deep_links_lead_to_the_page_and_missing_assets_nowhere() {
    for (path, code, body) in [
        ("/dashboard/", 200, "the page"),
        ("/dashboard/machines/default/my.vm.js", 200, "the page"),
        ("/dashboard/%2e%2e/%2e%2e/etc/passwd", 200, "the page"),
        ("/dashboard/favicon.svg", 200, "<svg/>"),
        ("/dashboard/assets/app-1a2b.js", 200, "plain script"),
        (
            "/dashboard/assets/app-0000.js",
            404,
            "there is no such file; the page may have been updated: load it again\n",
        ),
    ] {
        let answer = ask(&BUILT, "GET", path, &[]).unwrap();
        assert_eq!((answer.status().as_u16(), answer.body().as_ref()), (code, body.as_bytes()), "{path}");
    }
    assert_eq!(ask(&BUILT, "POST", "/dashboard/", &[]).unwrap().status(), 405);
}

#[test]
fn files_come_packed_and_are_kept_by_their_names() {
    let script = "/dashboard/assets/app-1a2b.js";
    let packed = ask(&BUILT, "GET", script, &[("accept-encoding", "gzip, br")]).unwrap();
    assert_eq!((packed.body().as_ref(), header(&packed, "content-encoding")), (&b"brotli"[..], "br"));
    assert_eq!(header(&packed, "content-type"), "text/javascript; charset=utf-8");
    assert_eq!(header(&packed, "cache-control"), FOR_GOOD);
    assert_eq!((header(&packed, "vary"), header(&packed, "etag")), ("Accept-Encoding", "\"t2\""));
    let page = ask(&BUILT, "GET", "/dashboard/", &[("accept-encoding", "br")]).unwrap();
    assert_eq!((header(&page, "content-encoding"), header(&page, "cache-control")), ("", ASK_FIRST));
    for (known, code) in [("\"t5\"", 304), ("\"x\", W/\"t5\"", 304), ("\"t1\"", 200)] {
        let answer = ask(&BUILT, "GET", "/dashboard/", &[("if-none-match", known)]).unwrap();
        assert_eq!((answer.status().as_u16(), answer.body().is_empty()), (code, code == 304), "{known}");
    }
}

#[test]
fn every_answer_is_protected() {
    for path in ["/dashboard", "/dashboard/", "/dashboard/x", "/dashboard/assets/none.js", "/dashboard/favicon.svg"] {
        let answer = ask(&BUILT, "GET", path, &[]).unwrap();
        let policy = header(&answer, "content-security-policy");
        assert!(policy.contains("script-src 'self';") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(header(&answer, "x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header(&answer, "cross-origin-opener-policy"), "same-origin", "{path}");
    }
}

#[test]
fn without_the_page_one_is_told_how_to_build_it() {
    let answer = ask(&Embedded(&[]), "GET", "/dashboard/machines", &[]).unwrap();
    assert_eq!((answer.status().as_u16(), header(&answer, "cache-control")), (503, NEVER));
    assert!(std::str::from_utf8(answer.body()).unwrap().contains("make ui"));
}

#[test]
fn on_the_disk_nothing_is_read_but_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let dist = dir.path().join("dist");
    std::fs::create_dir_all(dist.join("assets")).unwrap();
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    std::fs::write(dist.join(".hidden"), "hidden").unwrap();
    std::fs::write(dist.join("assets/a.js"), "a").unwrap();
    let files = OnDisk(dist.to_str().unwrap());
    assert_eq!(files.find("assets/a.js"), Some(Found { content: "a".into(), tag: "ca978112ca1bbdca".to_owned() }));
    for name in ["../secret", "assets/../../secret", ".hidden", "", "assets", "/etc/passwd", "assets//a.js", "a\0"] {
        assert_eq!(files.find(name), None, "{name:?}");
    }
}

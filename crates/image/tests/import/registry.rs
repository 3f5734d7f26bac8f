//! Disks out of container images, from Debian's docker-registry and from one that wants tokens.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use croft_image::oci::{Access, Platform, PullError, Reference, find};
use croft_image::{Credentials, Format, Imported, Transport};
use serde_json::json;

use super::server::{Answer, Server};
use super::{DISK, Place, run, same, text};

/// `user` with the password `secret`.
const PASSWORDS: &str = "user:$2b$04$Wc/kEYRtABijptoU5qe92u0JQVbf/Lq6oDYobDgMHrDeR9/ua5SCq\n";

struct Registry {
    host: String,
    process: Child,
    client: reqwest::Client,
}

impl Registry {
    async fn start(dir: &Path, passwords: Option<&Path>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let auth = passwords
            .map_or_else(String::new, |path| format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", text(path)));
        let data = dir.join("registry");
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: '127.0.0.1:{port}'}}\n{auth}",
            text(&data)
        );
        fs::write(dir.join("registry.yml"), config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(dir.join("registry.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("docker-registry is installed");
        let registry = Self { host: format!("127.0.0.1:{port}"), process, client: reqwest::Client::new() };
        while registry.client.get(registry.url("")).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        registry
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v2/{path}", self.host)
    }

    fn request(&self, method: reqwest::Method, url: &str) -> reqwest::RequestBuilder {
        self.client.request(method, url).basic_auth("user", Some("secret"))
    }

    async fn push_blob(&self, repository: &str, blob: Vec<u8>) -> String {
        let begun = self.request(reqwest::Method::POST, &self.url(&format!("{repository}/blobs/uploads/")));
        let begun = begun.send().await.unwrap().error_for_status().unwrap();
        let place = begun.headers()["location"].to_str().unwrap().to_owned();
        let digest = digest(&blob);
        let put = self.request(reqwest::Method::PUT, &format!("{place}&digest={digest}")).body(blob);
        put.send().await.unwrap().error_for_status().unwrap();
        digest
    }

    async fn push_manifest(&self, repository: &str, tag: &str, kind: &str, document: &serde_json::Value) -> String {
        let body = serde_json::to_vec(document).unwrap();
        let digest = digest(&body);
        let tag = if tag.is_empty() { &digest } else { tag };
        let put = self.request(reqwest::Method::PUT, &self.url(&format!("{repository}/manifests/{tag}")));
        put.header("content-type", kind).body(body).send().await.unwrap().error_for_status().unwrap();
        digest
    }

    /// An image of these layers, for this kind of machine under a list if one is given.
    async fn push(&self, repository: &str, layers: &[Vec<u8>], architecture: Option<&str>) -> String {
        const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
        const INDEX: &str = "application/vnd.oci.image.index.v1+json";
        let config = b"{}".to_vec();
        let config = json!({ "mediaType": "application/vnd.oci.image.config.v1+json", "size": config.len(),
            "digest": self.push_blob(repository, config).await });
        let mut descriptors = Vec::new();
        for layer in layers {
            let size = layer.len();
            let digest = self.push_blob(repository, layer.clone()).await;
            descriptors.push(
                json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": size, "digest": digest }),
            );
        }
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": descriptors });
        let Some(architecture) = architecture else {
            return self.push_manifest(repository, "latest", MANIFEST, &manifest).await;
        };
        let digest = self.push_manifest(repository, "", MANIFEST, &manifest).await;
        let size = serde_json::to_vec(&manifest).unwrap().len();
        let entry = json!({ "mediaType": MANIFEST, "digest": digest, "size": size,
            "platform": { "os": "linux", "architecture": architecture, "variant": "v8" } });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entry] });
        self.push_manifest(repository, "latest", INDEX, &index).await
    }

    fn image(&self, repository: &str) -> String {
        format!("{}/{repository}", self.host)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn digest(data: &[u8]) -> String {
    let sum = <sha2::Sha256 as sha2::Digest>::digest(data);
    sum.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A layer with one file, packed by tar's option.
fn layer(place: &Place, file: &Path, name: &str, pack: &str) -> Vec<u8> {
    let root = place.made(&format!("root-{}", name.replace('/', "-")));
    let target = root.join(name);
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    fs::copy(file, &target).unwrap();
    let archive = place.made("layer.tar");
    run("tar", &["-c", pack, "-f", text(&archive), "-C", text(&root), "."]);
    fs::read(&archive).unwrap()
}

fn access(user: Option<&str>) -> Access {
    let credentials = user.map(|user| Credentials { user: user.to_owned(), password: "secret".to_owned() });
    Access { transport: Transport { credentials, ..Transport::default() }, ..Access::default() }
}

async fn pull(
    image: &str,
    path: Option<&str>,
    access: &Access,
    place: &Place,
) -> Result<(String, Imported), PullError> {
    let reference: Reference = image.parse().unwrap();
    let platform = Platform { os: "linux".to_owned(), architecture: "amd64".to_owned() };
    let found = find(&reference, &platform, access).await?;
    let digest = found.digest.clone();
    Ok((digest, found.pull(path, &place.destination(), &place.options()).await?))
}

fn qcow2(place: &Place) -> std::path::PathBuf {
    let (disk, image) = (place.disk(), place.made("disk.qcow2"));
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", "-c", text(&disk), text(&image)]);
    image
}

#[tokio::test]
async fn the_disk_of_an_image_is_pulled_whatever_its_layers_are_packed_with() {
    let place = Place::new();
    let image = qcow2(&place);
    let registry = Registry::start(place.dir.path(), None).await;
    for (pack, architecture) in [("--gzip", None), ("--zstd", Some("amd64")), ("--no-auto-compress", Some("amd64"))] {
        let other = layer(&place, &image, "etc/other", pack);
        let layers = [layer(&place, &image, "disk/disk.qcow2", pack), other];
        let pushed = registry.push("test/disk", &layers, architecture).await;
        let (digest, imported) = pull(&registry.image("test/disk"), None, &access(None), &place).await.unwrap();
        assert_eq!((&digest, imported.virtual_size, imported.format), (&pushed, DISK, Format::Qcow2), "{pack}");
        assert!(same(&place.destination(), &place.made("disk.raw")), "{pack}");
        let by_digest = format!("{}@{pushed}", registry.image("test/disk"));
        assert_eq!(pull(&by_digest, Some("/etc/other"), &access(None), &place).await.unwrap().0, pushed);
        assert_eq!(place.left(), ["image.raw"]);
    }
}

#[tokio::test]
async fn what_an_image_does_not_have_is_named() {
    let place = Place::new();
    let image = qcow2(&place);
    let registry = Registry::start(place.dir.path(), None).await;
    registry.push("test/empty", &[layer(&place, &image, "etc/x", "--gzip")], None).await;
    registry.push("test/arm", &[layer(&place, &image, "disk/x", "--gzip")], Some("arm64")).await;
    for (image, expected) in [
        ("test/empty", "the image has no disk"),
        ("test/arm", "no image for linux/amd64"),
        ("test/none", "has no 127.0.0.1"),
    ] {
        let error = pull(&registry.image(image), None, &access(None), &place).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{image}: {error}");
    }
    let absent = format!("{}@sha256:{}", registry.image("test/arm"), "0".repeat(64));
    assert!(matches!(pull(&absent, None, &access(None), &place).await, Err(PullError::NotFound(_))));
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[tokio::test]
async fn a_registry_that_wants_a_password_gets_it() {
    let place = Place::new();
    let image = qcow2(&place);
    fs::write(place.made("passwords"), PASSWORDS).unwrap();
    let registry = Registry::start(place.dir.path(), Some(&place.made("passwords"))).await;
    registry.push("test/disk", &[layer(&place, &image, "disk/x", "--gzip")], None).await;
    for user in [None, Some("mallory")] {
        let error = pull(&registry.image("test/disk"), None, &access(user), &place).await.unwrap_err();
        assert!(matches!(error, PullError::Unauthorized { .. }), "{error}");
    }
    pull(&registry.image("test/disk"), None, &access(Some("user")), &place).await.unwrap();
    assert!(same(&place.destination(), &place.made("disk.raw")));
}

/// A registry of one image, which gives tokens and may lie about its blob.
async fn token_registry(layer: Vec<u8>, sent: Vec<u8>) -> Server {
    let manifest = json!({ "schemaVersion": 2, "layers": [{ "digest": digest(&layer) }] }).to_string().into_bytes();
    Server::start(move |request| {
        let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
        if request.path.starts_with("/token") {
            assert_eq!(request.path, "/token?service=me&scope=repository%3Aa%2Fb%3Apull");
            let token = if header("authorization").starts_with("Basic ") { "good" } else { "bad" };
            return Answer::whole(format!("{{\"token\":\"{token}\"}}").as_bytes(), "token");
        }
        if header("authorization") != "Bearer good" {
            let realm = format!("http://{}/token", header("host"));
            let mut answer = Answer::status("401 Unauthorized");
            let challenge = format!("Bearer realm=\"{realm}\",service=\"me\",scope=\"repository:a/b:pull\"");
            answer.headers.push(("www-authenticate", challenge));
            return answer;
        }
        if request.path.contains("/manifests/") {
            return Answer::whole(&manifest, "manifest");
        }
        let answer = Answer::honest(request, &sent, "blob");
        // The first time the connection breaks.
        if request.from().is_none() { answer.cut(100_000) } else { answer }
    })
    .await
}

#[tokio::test]
async fn tokens_are_fetched_broken_layers_resumed_and_digests_checked() {
    let place = Place::new();
    let image = qcow2(&place);
    let layer = layer(&place, &image, "disk/x", "--gzip");
    let server = token_registry(layer.clone(), layer.clone()).await;
    let name = format!("127.0.0.1:{}/a/b", server.port);
    pull(&name, None, &access(Some("user")), &place).await.unwrap();
    assert!(same(&place.destination(), &place.made("disk.raw")));
    fs::remove_file(place.destination()).unwrap();
    let error = pull(&name, None, &access(None), &place).await.unwrap_err();
    assert!(matches!(error, PullError::Unauthorized { .. }), "{error}");

    let mut other = layer.clone();
    *other.last_mut().unwrap() ^= 1;
    let server = token_registry(layer, other).await;
    let name = format!("127.0.0.1:{}/a/b", server.port);
    let error = pull(&name, None, &access(Some("user")), &place).await.unwrap_err();
    assert!(matches!(error, PullError::Digest { .. } | PullError::Archive(_) | PullError::Import(_)), "{error}");
    assert!(place.left().is_empty(), "{:?}", place.left());
}

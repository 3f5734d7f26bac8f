//! Images: every format, packed and not; where they come from, how they go on, and what they are turned into.

use std::path::{Path, PathBuf};

use croft_e2e::machines::{BOOT, CLAIMS, IMAGES, becomes, condition, create, croft_ok, empty, is_gone, is_true, node};
use croft_e2e::storage::{
    begins_with, bound, claim, converted, deleted, disc, disk, image, image_file, imported, made, patched, run, text,
};
use croft_e2e::web::Web;
use croft_testkit::{Authority, Croft, StoreKind, eventually};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";

fn download(url: &str) -> Value {
    json!({"sourceType": "download", "url": url})
}

fn message(image: &Value) -> String {
    condition(image, "Imported").expect("a condition")["message"].as_str().unwrap_or_default().to_owned()
}

/// By the program of that name.
fn packed(program: &str, raw: &Path) -> Vec<u8> {
    let mut copy = raw.as_os_str().to_owned();
    copy.push(format!("-{program}"));
    let copy = PathBuf::from(copy);
    std::fs::copy(raw, &copy).expect("a copy");
    let (args, ending) = match program {
        "zstd" => (vec!["-q", "--rm", text(&copy)], "zst"),
        "gzip" => (vec![text(&copy)], "gz"),
        _ => (vec!["-0", text(&copy)], "xz"),
    };
    run(program, &args).expect("packed");
    std::fs::read(format!("{}.{ending}", copy.display())).expect("the packed file")
}

/// Whatever the file is, the image is the disk; and it comes back as it went in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_format_becomes_the_same_disk() {
    let (server, client) = node().await;
    let dir = tempfile::tempdir().expect("a directory");
    let raw = dir.path().join("disk.raw");
    let content = disk();
    std::fs::write(&raw, &content).expect("a file");
    let web = Web::start().await.expect("a server");
    let mut names = Vec::new();
    for format in ["raw", "qcow2", "vmdk", "vhdx", "vdi", "vpc"] {
        let file = if format == "raw" { content.clone() } else { converted(&raw, format).expect("converted") };
        names.push((format.to_owned(), web.put(format, file).await));
    }
    for program in ["xz", "gzip", "zstd"] {
        names.push((program.to_owned(), web.put(program, packed(program, &raw)).await));
        let inner = packed(program, &raw.with_extension("qcow2"));
        names.push((format!("qcow2-{program}"), web.put(&format!("qcow2-{program}"), inner).await));
    }
    for (name, url) in &names {
        made(&client, IMAGES, &image(name, &download(url))).await;
    }
    let iso = disc("readme", "hello").expect("a CD");
    made(&client, IMAGES, &image("iso", &download(&web.put("iso", iso.clone()).await))).await;

    for (name, _) in &names {
        let done = imported(&client, name).await;
        assert!(is_true(&done, "Imported"), "{name}: {}", message(&done));
        let status = &done["status"];
        // A VHD's size is rounded up to its geometry.
        let size = if name == "vpc" { status["virtualSize"].as_u64().expect("a size") } else { 16 << 20 };
        assert_eq!((&status["progress"], &status["virtualSize"]), (&json!(100), &json!(size)), "{name}: {status}");
        assert_eq!(status["storageClassName"], format!("longhorn-{name}"), "{status}");
        let file = std::fs::read(image_file(&server, &done)).expect("the image's file");
        assert!(begins_with(&file, &content, usize::try_from(size).expect("a size")), "{name}");
    }
    let done = imported(&client, "iso").await;
    assert!(is_true(&done, "Imported"), "{}", message(&done));
    assert!(std::fs::read(image_file(&server, &done)).expect("the image's file").starts_with(&iso));

    let back = dir.path().join("back.raw.gz");
    croft_ok(&server, &["image", "download", "qcow2", "--file", text(&back)]).await.expect("downloaded");
    run("gzip", &["-d", text(&back)]).expect("unpacked");
    let back = std::fs::read(back.with_extension("")).expect("the file that came back");
    assert!(back == content, "it comes back as it went in");
}

/// Checksums, volumes that become images, copies, and what holds an image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_checked_copied_and_held() {
    let (server, client) = node().await;
    let web = Web::start().await.expect("a server");
    let content = disk();
    let url = web.put("disk.raw", content.clone()).await;
    let sum = Sha512::digest(&content).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let with_sum = |sum: &str| json!({"sourceType": "download", "url": url, "checksum": sum});
    made(&client, IMAGES, &image("good", &with_sum(&sum))).await;
    made(&client, IMAGES, &image("bad", &with_sum(&"0".repeat(128)))).await;
    let good = imported(&client, "good").await;
    assert!(is_true(&good, "Imported"), "{}", message(&good));
    let bad = imported(&client, "bad").await;
    assert!(!is_true(&bad, "Imported") && message(&bad).contains("checksum"), "{}", message(&bad));
    assert!(!image_file(&server, &bad).exists(), "nothing is left");

    made(&client, CLAIMS, &claim("root", "longhorn-good", "16Mi")).await;
    bound(&client, "root").await;
    let held = client.delete(&format!("{IMAGES}/good")).await.expect("an answer");
    assert!(held.status >= 400 && held.text().contains("root"), "{}: {}", held.status, held.text());

    let export = json!({"sourceType": "export-from-volume", "pvcName": "root", "pvcNamespace": "default"});
    made(&client, IMAGES, &image("exported", &export)).await;
    let exported = imported(&client, "exported").await;
    assert!(is_true(&exported, "Imported"), "{}", message(&exported));
    assert!(std::fs::read(image_file(&server, &exported)).expect("a file") == content);

    // Harvester clones to encrypt, which is not offered: it is refused, and no plain copy is made of it.
    let security = json!({"cryptoOperation": "encrypt", "sourceImageName": "good", "sourceImageNamespace": "default"});
    let encrypt = image("secret", &json!({"sourceType": "clone", "securityParameters": security}));
    let refused = client.post(IMAGES, &encrypt).await.expect("an answer");
    assert!(refused.status >= 400 && refused.text().contains("encrypt"), "{}: {}", refused.status, refused.text());

    deleted(&client, &format!("{CLAIMS}/root")).await;
    is_gone(&client, &format!("{CLAIMS}/root")).await;
    eventually("the image can go", async || client.delete(&format!("{IMAGES}/good")).await?.ok().map(drop)).await;
    is_gone(&client, &format!("{IMAGES}/good")).await;
    assert!(!image_file(&server, &good).exists(), "its file goes with it");
}

/// A download that the server's death cuts off goes on where it was; proxies and authorities of the settings count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_go_on_and_follow_the_settings() {
    let (mut server, client) = node().await;
    let web = Web::start().await.expect("a server");
    let content = disk();
    let (url, gate) = web.put_half("disk.raw", content.clone()).await;
    made(&client, IMAGES, &image("cut", &download(&url))).await;
    let half = |image: &Value| image["status"]["progress"].as_i64().is_some_and(|progress| progress >= 45);
    becomes(&client, &format!("{IMAGES}/cut"), "half there", BOOT, half).await;
    server.kill().expect("killed");
    gate.open();
    server.restart().await.expect("restarted");
    let client = server.client().expect("a client");
    let done = imported(&client, "cut").await;
    assert!(is_true(&done, "Imported"), "{}", message(&done));
    assert!(std::fs::read(image_file(&server, &done)).expect("a file") == content);
    let seen = web.seen().await;
    let last = seen.last().and_then(|seen| seen.from).unwrap_or_default();
    assert!(last > content.len() / 3, "it began anew: {seen:?}");

    // A name that nobody resolves: only the proxy can know what is meant.
    let proxy = json!({"httpProxy": web.url(""), "httpsProxy": "", "noProxy": "0.0.0.0/0,::/0"});
    let proxy = json!({"value": proxy.to_string()});
    patched(&client, &format!("{SETTINGS}/http-proxy"), &proxy).await;
    made(&client, IMAGES, &image("proxied", &download("http://images.invalid/disk.raw"))).await;
    let done = imported(&client, "proxied").await;
    assert!(is_true(&done, "Imported"), "{}", message(&done));
    let seen = web.seen().await;
    assert!(seen.iter().any(|seen| seen.target.starts_with("http://images.invalid/")), "{seen:?}");

    let authority = Authority::new("images").expect("an authority");
    let secure = Web::secure(&authority.server().expect("a certificate")).await.expect("a server");
    let url = secure.put("disk.raw", content.clone()).await;
    let mut unknown = image("unknown", &download(&url));
    unknown["spec"]["retry"] = json!(0);
    made(&client, IMAGES, &unknown).await;
    let failed = imported(&client, "unknown").await;
    assert!(!is_true(&failed, "Imported"), "an authority that nobody knows");
    patched(&client, &format!("{SETTINGS}/additional-ca"), &json!({"value": authority.cert_pem()})).await;
    made(&client, IMAGES, &image("trusted", &download(&url))).await;
    let done = imported(&client, "trusted").await;
    assert!(is_true(&done, "Imported"), "{}", message(&done));
}

/// A newcomer has something to make a machine of; who has machines is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_offers_an_image_and_one_in_use_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("First.raw");
    std::fs::write(&file, disk()).expect("a file");
    let args = ["--first-image", text(&file)];
    let mut server = Croft::start_node(StoreKind::Embedded, &args).await.expect("the server starts");
    let client = server.client().expect("a client");
    let first = format!("{IMAGES}/first");
    becomes(&client, &first, "imported", BOOT, |image| is_true(image, "Imported")).await;

    deleted(&client, &first).await;
    is_gone(&client, &first).await;
    let mut machine = empty("mine");
    machine["spec"]["runStrategy"] = json!("Halted");
    create(&client, &machine).await;
    server.kill().expect("killed");
    server.restart().await.expect("the server starts again");
    let client = server.client().expect("a client");
    // Whatever it offers comes before this.
    croft_ok(&server, &["image", "upload", "mine", text(&file)]).await.expect("uploaded");
    let images = client.get(IMAGES).await.expect("an answer").json();
    let names: Vec<_> =
        images["items"].as_array().expect("a list").iter().map(|image| &image["metadata"]["name"]).collect();
    assert_eq!(names, ["mine"]);
}

//! A bucket as a target, on a server that checks who asks.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use croft_backup::{BackupRequest, Fault, Progress, S3, S3Access, Target, Transfer, target};
use serde_json::Value;

use crate::kill;
use crate::relay::{Mode, Relay};
use crate::stage::{self, BLOCK, Disk, assert_restores, python, request, script, store};
use crate::whole::everything;

struct Server {
    port: u16,
    access: S3Access,
    process: Child,
    /// It ends when this does.
    _input: ChildStdin,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(python());
        command.arg(script("s3_server.py")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).expect("the S3 server says where it is");
        let text = |key: &str| said[key].as_str().unwrap().to_owned();
        let port = u16::try_from(said["port"].as_u64().unwrap()).unwrap();
        let access = S3Access {
            endpoint: format!("http://127.0.0.1:{port}"),
            access_key_id: text("id"),
            secret_access_key: text("secret"),
            ..S3Access::default()
        };
        let input = process.stdin.take().unwrap();
        Self { port, access, process, _input: input }
    }

    fn target(&self, path: &str) -> Arc<dyn Target> {
        Arc::new(S3::new("croft", "us-east-1", path, self.access.clone()).unwrap())
    }

    fn through(&self, relay: &Relay) -> Arc<dyn Target> {
        let access = S3Access { endpoint: format!("http://127.0.0.1:{}/", relay.port), ..self.access.clone() };
        Arc::new(S3::new("croft", "us-east-1", "relayed", access).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_works_and_says_what_is_wrong() {
    let server = Server::start();
    everything(server.target("")).await;
    everything(server.target("some/path")).await;
    wrong_targets(&server).await;
    own_certificates(&server).await;
    let relay = Relay::to(server.port).await;
    answers(&server, &relay).await;
    gone_and_back(&server, &relay).await;
    kill::points(&kill::Place::S3 { access: server.access.clone() }, 20, 300).await;
}

async fn wrong_targets(server: &Server) {
    let fault = async |bucket: &str, access: S3Access| {
        let target = S3::new(bucket, "us-east-1", "", access).unwrap();
        target::check(&target).await.unwrap_err()
    };
    let access = || server.access.clone();
    let wrong_secret = fault("croft", S3Access { secret_access_key: "wrong".into(), ..access() }).await;
    assert_eq!(wrong_secret.fault, Fault::Forbidden, "{wrong_secret}");
    let nobody = fault("croft", S3Access { access_key_id: "nobody".into(), ..access() }).await;
    assert_eq!(nobody.fault, Fault::Forbidden, "{nobody}");
    let no_bucket = fault("nothing", access()).await;
    assert_eq!(no_bucket.fault, Fault::NoTarget, "{no_bucket}");
    let nowhere = fault("croft", S3Access { endpoint: "http://127.0.0.1:1".into(), ..access() }).await;
    assert_eq!(nowhere.fault, Fault::Unreachable, "{nowhere}");
    let unknown = fault("croft", S3Access { endpoint: "http://nowhere.invalid".into(), ..access() }).await;
    assert_eq!(unknown.fault, Fault::Unreachable, "{unknown}");
    let text = croft_meta::Chain(&wrong_secret).to_string();
    assert!(!text.contains(&server.access.secret_access_key), "{text}");
    let missing = server.target("").get("not/there", 10).await.unwrap_err();
    assert_eq!(missing.fault, Fault::NotFound, "{missing}");
}

async fn own_certificates(server: &Server) {
    let (relay, ca) = Relay::with_tls_to(server.port).await;
    let endpoint = format!("https://127.0.0.1:{}", relay.port);
    let target = |ca: String| {
        let access = S3Access { endpoint: endpoint.clone(), ca, ..server.access.clone() };
        S3::new("croft", "us-east-1", "tls", access).unwrap()
    };
    target::check(&target(ca)).await.unwrap();
    let untrusted = target::check(&target(String::new())).await.unwrap_err();
    assert_eq!(untrusted.fault, Fault::Unreachable);
    let why = croft_meta::Chain(&untrusted).to_string();
    assert!(why.contains("certificate"), "{why}");
}

async fn answers(server: &Server, relay: &Relay) {
    let target = server.through(relay);
    for (status, code, fault) in [
        (500, "InternalError", Fault::Server),
        (503, "SlowDown", Fault::Server),
        (403, "AccessDenied", Fault::Forbidden),
        (507, "InsufficientStorage", Fault::Full),
        (403, "QuotaExceeded", Fault::Full),
        (404, "NoSuchBucket", Fault::NoTarget),
    ] {
        relay.set(Mode::Answer(status, code));
        for error in [
            target.put("x/y", "z".into()).await.unwrap_err(),
            target.list("").await.unwrap_err(),
            target.get("x/y", 10).await.unwrap_err(),
        ] {
            assert_eq!(error.fault, fault, "{status} {code}: {error}");
        }
    }
    relay.set(Mode::Pass);
    target::check(target.as_ref()).await.unwrap();
}

/// Cut off in the middle: short enough to be waited for, and too long.
async fn gone_and_back(server: &Server, relay: &Relay) {
    let dir = stage::dir();
    let disk = Disk::new(dir.path().join("disk"), 30);
    let (cut, mut cuts) = tokio::sync::mpsc::channel(16);
    let progress = Arc::new(move |progress: Progress| {
        if progress.done == 2 * BLOCK as u64 {
            let _ = cut.try_send(());
        }
    });
    let transfer = Transfer { parallel: 1, progress: Some(progress), ..Transfer::default() };
    let first = BackupRequest { transfer, ..request(&disk.path, "pvc-1", "backup-1") };
    let impatient = store(server.through(relay)).with_patience(Duration::from_millis(500));
    let ((), failed) = tokio::join!(
        async {
            cuts.recv().await.unwrap();
            relay.set(Mode::Cut);
        },
        impatient.write(&first)
    );
    let failed = failed.unwrap_err();
    assert_eq!(failed.fault(), Some(Fault::Unreachable), "{failed}");
    relay.set(Mode::Pass);

    let patient = store(server.through(relay));
    let ((), written) = tokio::join!(
        async {
            cuts.recv().await.unwrap();
            relay.set(Mode::Cut);
            relay.has_refused().await;
            relay.set(Mode::Pass);
        },
        patient.write(&first)
    );
    let written = written.unwrap();
    assert!(written.new_blocks < 6, "what was there is not sent again: {written:?}");
    assert_restores(&patient, "pvc-1", "backup-1", None, &disk.content).await;
    patient.delete_volume("pvc-1").await.unwrap();
}

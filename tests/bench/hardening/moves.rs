//! All objects at once: saved to a file, and moved from the embedded store into etcd.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use croft_e2e::machines::croft_ok;
use croft_testkit::{Authority, Client, Croft, Etcd, Protocol, StoreKind, find_program};
use tokio::process::Command;

use crate::Size;
use crate::load::{self, MAPS, Puts, Writer};
use crate::report::{Report, Row, mib, ratio, seconds};

const OBJECT_BYTES: usize = 2048;
const CLIENTS: usize = 8;
/// How long the server may take to end.
const END: Duration = Duration::from_secs(30);
/// A snapshot of etcd is a copy of its file; a saved state is packed, and read back before it counts.
const SAVE_TIMES: f64 = 5.0;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let objects = size.of(100_000);
    let mut croft = Croft::start(StoreKind::Embedded).await?;
    let writers = (0..CLIENTS).map(|_| croft.client_over(Protocol::Http2).map(Mixed)).collect::<Result<Vec<_>>>()?;
    load::together(&writers, "saved", 0..objects, OBJECT_BYTES).await?;
    let dir = tempfile::Builder::new().prefix("croft-bench-").tempdir()?;
    let (state, snapshot, ca) = (dir.path().join("state.gz"), dir.path().join("snapshot"), dir.path().join("ca.crt"));

    let start = Instant::now();
    croft_ok(&croft, &["state", "save", &text(&state)?]).await?;
    let saved_in = start.elapsed();

    croft.terminate(END).await?;
    let authority = Authority::new("etcd")?;
    std::fs::write(&ca, authority.cert_pem())?;
    let (source, rival) = (Etcd::start_tls(&authority).await?, Etcd::start_tls(&authority).await?);
    let move_args = ["migrate-store", "--to", "etcd", "--etcd-endpoints", &source.url, "--data-dir"];
    let mut command = Command::new(croft_testkit::binary()?);
    command.args(move_args).arg(croft.data_dir()).arg("--etcd-cafile").arg(&ca);
    let moved_in = timed(command).await?;
    let puts = (0..CLIENTS)
        .map(|_| Client::trusting(&rival.url, &authority.cert_pem(), Protocol::Http2).map(Puts).map(MixedPuts))
        .collect::<Result<Vec<_>>>()?;
    // The rate does not need all of them.
    let put = load::together(&puts, "put", 0..objects / 5, OBJECT_BYTES).await?;

    // The etcd that was moved into has the very same objects.
    let etcdctl = find_program("etcdctl").context("etcdctl is not installed (Debian: etcd-client)")?;
    let mut command = Command::new(etcdctl);
    command.env("ETCDCTL_API", "3").args(["--endpoints", &source.url, "--cacert"]).arg(&ca);
    command.args(["snapshot", "save"]).arg(&snapshot);
    let rival_saved_in = timed(command).await?;

    let better = ratio(rival_saved_in, saved_in);
    report.row(&Row {
        what: "saving the state of 100,000 objects (etcdctl: a snapshot of the same)",
        croft: format!("{} ({})", seconds(saved_in), mib(std::fs::metadata(&state)?.len())),
        rival: format!("{} ({})", seconds(rival_saved_in), mib(std::fs::metadata(&snapshot)?.len())),
        ratio: Some(better),
        goal: format!("{SAVE_TIMES} x the time"),
        met: better * SAVE_TIMES >= 1.0,
    });
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let moved = objects as f64 / moved_in.as_secs_f64();
    report.row(&Row {
        what: "moving them into etcd, read back and compared (etcd: puts, 8 clients)",
        croft: format!("{moved:.0}/s"),
        rival: format!("{put:.0}/s"),
        ratio: Some(moved / put),
        goal: "0.5 x".into(),
        met: moved * 2.0 >= put,
    });
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("a path")?.to_owned())
}

async fn timed(mut command: Command) -> Result<Duration> {
    command.kill_on_drop(true);
    let start = Instant::now();
    let output = command.output().await?;
    let took = start.elapsed();
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(took)
}

/// Creates of ConfigMaps of which half can be compressed: what is saved is.
#[derive(Debug, Clone)]
struct Mixed(Client);

impl Writer for Mixed {
    async fn write(&self, name: &str, size: usize) -> Result<()> {
        load::create(&self.0, MAPS, mixed(name, size)?).await
    }
}

/// Puts of the same.
#[derive(Debug, Clone)]
struct MixedPuts(Puts);

impl Writer for MixedPuts {
    async fn write(&self, name: &str, size: usize) -> Result<()> {
        self.0.put(&format!("/registry/configmaps/default/{name}"), &mixed(name, size)?).await
    }
}

/// The second half of what fills it are other hexadecimal digits for each name.
fn mixed(name: &str, size: usize) -> Result<bytes::Bytes> {
    let mut object = load::object(name, size).to_vec();
    let end = object.len() - 3;
    let start = end - (size / 2).min(end);
    let mut state = name
        .bytes()
        .fold(0x9e37_79b9_7f4a_7c15_u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let chunks = object.get_mut(start..end).context("room for it")?.chunks_mut(16);
    for chunk in chunks {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let digits = format!("{state:016x}");
        chunk.copy_from_slice(&digits.as_bytes()[..chunk.len()]);
    }
    Ok(object.into())
}

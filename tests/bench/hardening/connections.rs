//! What a connection costs on which nothing is asked.

use anyhow::{Result, ensure};
use croft_testkit::{Client, Croft, Protocol, StoreKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Size;
use crate::report::{Report, Row};

const CONNECTIONS: usize = 4000;
/// What `crates/cli/src/limits.rs` takes a connection for when it decides how many there may be.
const RECKONED_BYTES: u64 = 64 << 10;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let count = size.of(CONNECTIONS);
    // This process needs as many descriptors as the server, which takes all that it may have by itself.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let croft = Croft::start_with(StoreKind::Embedded, &[&format!("--max-connections={}", 2 * count)]).await?;
    // What the first ones need is not needed again.
    let first = asked_once(&croft, 50).await?;
    let before = croft.process().resident_bytes()?;
    let clients = asked_once(&croft, count).await?;
    let figure = open_connections(&croft).await?;
    ensure!(figure >= count, "{figure} connections are open, not {count}");
    let each = croft.process().resident_bytes()?.saturating_sub(before) / u64::try_from(count)?;
    drop((first, clients));
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let (kib, better) = (each as f64 / 1024.0, RECKONED_BYTES as f64 / each.max(1) as f64);
    report.row(&Row {
        what: "memory of an open, idle connection (rival: what the server reckons with)",
        croft: format!("{kib:.1} KiB"),
        rival: format!("{} KiB", RECKONED_BYTES / 1024),
        ratio: Some(better),
        goal: "1 x".into(),
        met: better >= 1.0,
    });
    Ok(())
}

/// Clients with one connection each (HTTP/2 over TLS, with a certificate), on which one thing has been asked.
async fn asked_once(croft: &Croft, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let client = croft.client_over(Protocol::Http2)?;
        client.get("/api/v1/namespaces/default").await?.ok()?;
        clients.push(client);
    }
    Ok(clients)
}

async fn open_connections(croft: &Croft) -> Result<usize> {
    let figures = croft.client()?.get("/metrics").await?.text();
    let line = figures.lines().find_map(|line| line.strip_prefix("croft_connections "));
    Ok(line.and_then(|number| number.trim().parse().ok()).unwrap_or_default())
}

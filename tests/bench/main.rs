//! Measures Croft beside its rivals in the same run, on the same disk, with the same compiled client, and prints a
//! table in Markdown.
//!
//! The rivals: Debian's etcd, put to over gRPC (HTTP/2 and TLS, its fastest interface, with the very client that Croft
//! gets); nginx serving the bytes of a LIST as a file over TLS; QEMU started by hand; kube-apiserver with etcd when `KUBE_APISERVER` is set.
//! `bench quick` uses a tenth of the objects, to try it out; `bench api` and `bench machines` measure that half alone.

mod load;
mod machines;
mod nginx;
mod report;
mod scale;
mod speed;
mod watchers;

use anyhow::{Result, bail};

use report::Report;

/// How much of everything; the table of the issue is at full size.
#[derive(Debug, Clone, Copy)]
struct Size {
    divisor: usize,
}

impl Size {
    fn of(self, full: usize) -> usize {
        (full / self.divisor).max(10)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mut divisor, mut wants_api, mut wants_machines) = (1, true, true);
    for arg in &args {
        match arg.as_str() {
            "quick" => divisor = 10,
            "api" => wants_machines = false,
            "machines" => wants_api = false,
            _ => bail!("usage: bench [quick] [api|machines]"),
        }
    }
    let size = Size { divisor };
    let mut report = Report::new(size.divisor);
    if wants_api {
        speed::measure(size, &mut report).await?;
        scale::measure(size, &mut report).await?;
        watchers::measure(size, &mut report).await?;
    }
    if wants_machines {
        machines::measure(size, &mut report).await?;
    }
    report.finish();
    Ok(())
}

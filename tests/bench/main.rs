//! Measures Croft beside its rivals in the same run, on the same disk, with the same compiled client, and prints a
//! table in Markdown.
//!
//! The rivals: Debian's etcd, put to over gRPC (HTTP/2 and TLS, its fastest interface, with the very client that Croft
//! gets); nginx serving the bytes of a LIST as a file over TLS; QEMU started by hand; zstd, cp and restic; kube-apiserver with etcd
//! when `KUBE_APISERVER` is set. The web page is measured in Debian's Chromium. What safety costs is measured beside the same server
//! without it.
//! `bench quick` uses a tenth of the objects, to try it out; `bench api`, `bench fairness`, `bench hardening`, `bench harvester`,
//! `bench machines`, `bench guests`, `bench images`, `bench backups` and `bench page` measure that part alone.

mod backups;
mod compare;
mod fairness;
mod hardening;
mod harvester;
mod load;
mod machines;
mod nginx;
mod page;
mod report;
mod scale;
mod speed;
mod steady;
mod watchers;

use anyhow::{Result, bail};

use report::Report;

const PARTS: [&str; 9] =
    ["api", "fairness", "hardening", "harvester", "machines", "guests", "images", "backups", "page"];

/// How much of everything; the table of the issue is at full size.
#[derive(Debug, Clone, Copy)]
struct Size {
    divisor: usize,
}

impl Size {
    fn of(self, full: usize) -> usize {
        self.of_at_least(full, 10)
    }

    fn of_at_least(self, full: usize, least: usize) -> usize {
        (full / self.divisor).max(least)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // What a measurement starts as a process of its own.
    if args.first().is_some_and(|first| first == fairness::crowd::ARGUMENT) {
        return fairness::crowd::be();
    }
    let (quick, parts): (Vec<&str>, Vec<&str>) = args.iter().map(String::as_str).partition(|arg| *arg == "quick");
    if parts.iter().any(|part| !PARTS.contains(part)) {
        bail!("usage: bench [quick] [{}]", PARTS.join("|"));
    }
    let wants = |part| parts.is_empty() || parts.contains(&part);
    let size = Size { divisor: if quick.is_empty() { 1 } else { 10 } };
    let mut report = Report::new(size.divisor);
    if wants("api") {
        speed::measure(size, &mut report).await?;
        scale::measure(size, &mut report).await?;
        watchers::measure(size, &mut report).await?;
    }
    if wants("fairness") {
        fairness::measure(size, &mut report).await?;
    }
    if wants("hardening") {
        hardening::measure(size, &mut report).await?;
    }
    if wants("harvester") {
        harvester::measure(size, &mut report).await?;
    }
    if wants("machines") {
        machines::measure(size, &mut report).await?;
    }
    if wants("guests") {
        machines::measure_guests(size, &mut report).await?;
    }
    if wants("images") {
        machines::measure_images(size, &mut report).await?;
    }
    if wants("backups") {
        backups::measure(size, &mut report).await?;
    }
    if wants("page") {
        page::measure(size, &mut report).await?;
    }
    report.finish();
    Ok(())
}

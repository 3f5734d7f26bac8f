//! What it costs to write down who did what.

use anyhow::{Result, ensure};
use croft_testkit::{Croft, Protocol, StoreKind};

use crate::Size;
use crate::compare::compare;
use crate::load::Creates;
use crate::report::Report;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let audited = Croft::start(StoreKind::Embedded).await?;
    let silent = Croft::start_with(StoreKind::Embedded, &["--audit-log-path=off"]).await?;
    let creates = |server: &Croft| server.client_over(Protocol::Http2).map(Creates);
    let compared = compare(size, || creates(&audited), || creates(&silent)).await?;
    let log = |server: &Croft| server.data_dir().join("audit/audit.log");
    ensure!(std::fs::metadata(log(&audited))?.len() > 0 && !log(&silent).exists(), "the wrong one was audited");
    compared.tell(report, "create with the audit log (rival: without)", 1.1);
    Ok(())
}
